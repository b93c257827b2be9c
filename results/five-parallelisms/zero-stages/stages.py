#!/usr/bin/env python3
"""Simulates job.json under every kind of data parallelism; writes stages.csv and stages.svg.

Run from the repository's root: python3 results/five-parallelisms/zero-stages/stages.py
"""
import json
import os
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).parent
HEADWAY = os.environ.get("HEADWAY", "build/headway")
KINDS = ["ddp", "zero1", "zero2", "zero3", "fsdp"]
LINES = ["parameters", "gradients", "optimizer", "activations", "buffers"]
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#bbbbbb"]


def simulated(kind):
    command = [HEADWAY, "simulate", str(FOLDER / "job.json"), "--dp-kind", kind, "--json", "-"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def table():
    rows = []
    for kind in KINDS:
        step = simulated(kind)
        stage = step["memory"]["per_stage"][0]
        sent = sum(line["bytes_per_rank"] * line["count"] for line in step["communication"])
        rows.append((kind, [stage[line] / 2**30 for line in LINES], stage["peak"] / 2**30,
                     step["iteration_time_s"], sent / 2**30, step["fits"]))
    return rows


def picture(rows):
    left, top, width, height = 60, 20, 560, 320
    most = max(peak for _, _, peak, _, _, _ in rows) * 1.05
    scale = height / most
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="780" height="400" '
             'font-family="sans-serif" font-size="12">']
    for gib in range(0, int(most) + 1, 20):
        y = top + height - gib * scale
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" '
                     f'stroke="#ddd"/><text x="{left - 8}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{gib}</text>')
    for number, (kind, lines, _, seconds, _, _) in enumerate(rows):
        x = left + width * (number + 0.2) / len(rows)
        bottom = top + height
        for size, colour in zip(lines, COLOURS):
            bottom -= size * scale
            parts.append(f'<rect x="{x:.1f}" y="{bottom:.1f}" width="{0.6 * width / len(rows):.1f}" '
                         f'height="{size * scale:.1f}" fill="{colour}"/>')
        parts.append(f'<text x="{x + 0.3 * width / len(rows):.1f}" y="{top + height + 18}" '
                     f'text-anchor="middle">{kind}, {seconds:.2f} s</text>')
    for number, (line, colour) in enumerate(zip(LINES, COLOURS)):
        y = top + 20 * number
        parts.append(f'<rect x="{left + width + 20}" y="{y}" width="12" height="12" '
                     f'fill="{colour}"/><text x="{left + width + 38}" y="{y + 10}">{line}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">'
                 'GiB at the peak of a rank, by kind of data parallelism</text></svg>')
    return "\n".join(parts) + "\n"


rows = table()
with open(FOLDER / "stages.csv", "w", encoding="utf-8") as out:
    out.write("dp_kind," + ",".join(f"{line}_gib" for line in LINES) +
              ",peak_gib,iteration_time_s,bytes_in_collectives_gib,fits\n")
    for kind, lines, peak, seconds, sent, fits in rows:
        values = ",".join(f"{value:.3f}" for value in lines)
        out.write(f"{kind},{values},{peak:.3f},{seconds:.3f},{sent:.3f},{str(fits).lower()}\n")
(FOLDER / "stages.svg").write_text(picture(rows), encoding="utf-8")

#!/usr/bin/env python3
"""Simulates job.json with each way to spread a sequence over the node; writes sequences.csv, .svg.

Run from the repository's root: python3 results/five-parallelisms/long-sequences/sequences.py
"""
import json
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).parent
# What shares out the sequence of 131,072 tokens among the 8 GPUs.
KINDS = {
    "Megatron SP (tp 8)": ["plan.tp=8", "plan.sequence_parallel=true"],
    "Ulysses (cp 8)": ["plan.cp=8", "plan.cp_kind=ulysses"],
    "all-gather (cp 8)": ["plan.cp=8", "plan.cp_kind=allgather"],
    "ring, zigzag (cp 8)": ["plan.cp=8"],
    "ring, striped (cp 8)": ["plan.cp=8", "plan.cp_balance=striped"],
    "ring, contiguous (cp 8)": ["plan.cp=8", "plan.cp_balance=contiguous"],
    "Ulysses 2 x ring 4": ["plan.cp=8", "plan.cp_kind=ulysses+ring", "plan.ulysses_degree=2"],
}


def simulated(settings):
    command = ["build/headway", "simulate", str(FOLDER / "job.json"), "--json", "-"]
    for setting in settings:
        command += ["--set", setting]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def table():
    rows = []
    for kind, settings in KINDS.items():
        step = simulated(settings)
        exposed = step["breakdown_s"]["tp"] + step["breakdown_s"]["cp"]
        activations = max(stage["activations"] for stage in step["memory"]["per_stage"])
        rows.append((kind, step["iteration_time_s"], exposed, activations / 2**30,
                     step["memory"]["peak_bytes"] / 2**30))
    return rows


def bars(rows, column, words, top, longest):
    left, width, height = 190, 480, 22
    parts = [f'<text x="{left}" y="{top - 8}" font-weight="bold">{words}</text>']
    for number, row in enumerate(rows):
        y = top + number * height
        length = width * row[column] / longest
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{row[0]}</text>'
                     f'<rect x="{left}" y="{y + 3}" width="{length:.1f}" height="15" fill="#1f77b4"/>'
                     f'<text x="{left + length + 6:.1f}" y="{y + 15}">{row[column]:.2f}</text>')
    return parts


def picture(rows):
    top = 30
    second = top + 22 * len(rows) + 50
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{second + 22 * len(rows) + 20}" '
             'font-family="sans-serif" font-size="12">']
    parts += bars(rows, 1, "step, seconds", top, max(row[1] for row in rows))
    parts += bars(rows, 3, "activations of a GPU, GiB", second, max(row[3] for row in rows))
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    rows = table()
    lines = ["kind,step_s,exposed_s,activations_gib,peak_gib"]
    lines += [f"{kind},{step:.4f},{exposed:.4f},{activations:.3f},{peak:.3f}"
              for kind, step, exposed, activations, peak in
              ((r[0].replace(",", ""), *r[1:]) for r in rows)]
    (FOLDER / "sequences.csv").write_text("\n".join(lines) + "\n")
    (FOLDER / "sequences.svg").write_text(picture(rows))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

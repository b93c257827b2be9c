#!/usr/bin/env python3
"""Simulates job.json under every schedule and number of micro-batches; writes bubble.csv, bubble.svg.

Run from the repository's root: python3 results/five-parallelisms/pipeline-bubble/bubble.py
"""
import json
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).parent
# Schedule, and what it needs besides its name.
SCHEDULES = {
    "gpipe": [], "1f1b": [], "interleaved": ["--set", "plan.vpp=2"],
    "zb-h1": [], "zb-h2": [], "zb-v": [], "v-half": [], "v-min": [], "dualpipe-v": [], "chimera": [],
}
MICRO_BATCHES = [8, 16, 32, 64]
COLOURS = ["#888888", "#1f77b4", "#17becf", "#2ca02c", "#98df8a", "#bcbd22", "#9467bd", "#e377c2",
           "#d62728", "#ff7f0e"]


def simulated(schedule, more, micro_batches):
    command = ["build/headway", "simulate", str(FOLDER / "job.json"), "--set",
               f"plan.schedule={schedule}", "--set", f"global_batch={micro_batches}", *more,
               "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else None


def table():
    rows = []
    for schedule, more in SCHEDULES.items():
        for micro_batches in MICRO_BATCHES:
            step = simulated(schedule, more, micro_batches)
            if step is None:  # a shape the schedule refuses
                continue
            peaks = [stage["peak"] for stage in step["memory"]["per_stage"]]
            rows.append((schedule, micro_batches, step["bubble_fraction"],
                         step["iteration_time_s"], max(peaks) / 2**30))
    return rows


def picture(rows):
    left, top, width, height, most = 60, 20, 560, 320, 0.4
    x = {m: left + width * i / (len(MICRO_BATCHES) - 1) for i, m in enumerate(MICRO_BATCHES)}
    y = lambda share: top + height * (1 - share / most)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="780" height="400" '
             'font-family="sans-serif" font-size="12">']
    for tenth in range(int(most * 10) + 1):
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y(tenth / 10):.1f}" '
                     f'y2="{y(tenth / 10):.1f}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{y(tenth / 10) + 4:.1f}" text-anchor="end">'
                     f'{tenth * 10} %</text>')
    for m in MICRO_BATCHES:
        parts.append(f'<text x="{x[m]:.1f}" y="{top + height + 18}" text-anchor="middle">{m}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">'
                 'micro-batches; bubble of 8 stages, share of the step</text>')
    for number, schedule in enumerate(SCHEDULES):
        points = [(x[m], y(share)) for name, m, share, _, _ in rows if name == schedule]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        colour = COLOURS[number]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + width + 30}" y="{top + 16 + 20 * number}" fill="{colour}">'
                     f'{schedule}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    rows = table()
    lines = ["schedule,micro_batches,bubble_fraction,iteration_time_s,fullest_stage_gib"]
    lines += [f"{s},{m},{b:.4f},{t:.4f},{g:.1f}" for s, m, b, t, g in rows]
    (FOLDER / "bubble.csv").write_text("\n".join(lines) + "\n")
    (FOLDER / "bubble.svg").write_text(picture(rows))


if __name__ == "__main__":
    main()

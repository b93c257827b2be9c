#!/usr/bin/env python3
"""Simulates job.json with tensor parallelism over 1 to 32 GPUs; writes tensor.csv, tensor.svg.

Run from the repository's root: python3 results/five-parallelisms/tensor-across-nodes/tensor.py
"""
import json
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).parent
DEGREES = [1, 2, 4, 8, 16, 32]


def simulated(tp):
    command = ["build/headway", "simulate", str(FOLDER / "job.json"), "--set", f"plan.tp={tp}", "--set",
               f"cluster.gpus={tp}", "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def table():
    rows = []
    for tp in DEGREES:
        step = simulated(tp)
        rows.append((tp, step["tokens_per_s_per_gpu"], step["breakdown_s"]["tp"] / step["iteration_time_s"]))
    return rows


def picture(rows):
    left, top, width, height = 70, 30, 480, 260
    most = max(row[1] for row in rows)
    slot = width / len(rows)
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="600" height="360" font-family="sans-serif" '
             'font-size="12">',
             f'<text x="{left}" y="18" font-weight="bold">tokens/s per GPU; dark: share of the step that '
             'waits for tensor-parallel communication</text>']
    for number, (tp, tokens, share) in enumerate(rows):
        x, length = left + number * slot, height * tokens / most
        parts.append(f'<rect x="{x:.1f}" y="{top + height - length:.1f}" width="{slot * 0.7:.1f}" '
                     f'height="{length:.1f}" fill="#1f77b4"/>'
                     f'<rect x="{x:.1f}" y="{top + height - length:.1f}" width="{slot * 0.7:.1f}" '
                     f'height="{length * share:.1f}" fill="#0b3c5d"/>'
                     f'<text x="{x + slot * 0.35:.1f}" y="{top + height - length - 5:.1f}" '
                     f'text-anchor="middle">{tokens:.0f}</text>'
                     f'<text x="{x + slot * 0.35:.1f}" y="{top + height + 18}" text-anchor="middle">'
                     f'tp {tp}</text>')
    parts.append(f'<text x="{left}" y="{top + height + 42}">8 GPUs a node: tp 16 and 32 cross the '
                 'network</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    rows = table()
    lines = ["tp,tokens_per_s_per_gpu,tp_share,change"]
    for number, (tp, tokens, share) in enumerate(rows):
        change = tokens / rows[number - 1][1] - 1 if number else 0
        lines.append(f"{tp},{tokens:.1f},{share:.4f},{change:.4f}")
    (FOLDER / "tensor.csv").write_text("\n".join(lines) + "\n")
    (FOLDER / "tensor.svg").write_text(picture(rows))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

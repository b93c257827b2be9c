#!/usr/bin/env python3
"""Simulates job.json with ever more experts, of which a token passes one; writes experts.csv, experts.svg.

Run from the repository's root: python3 results/five-parallelisms/experts-grow/experts.py
"""
import json
import math
import pathlib
import subprocess
import tempfile

FOLDER = pathlib.Path(__file__).parent
EXPERTS = [1, 8, 64, 512, 2048]
# Choices follow Zipf's law with this exponent where they are skewed.
SKEW = 0.3
CAPACITY = 1.25  # Switch Transformer's (arXiv 2101.03961, table 1)
KINDS = [("balanced", "dropless"), ("balanced", "dropping"), ("skewed", "dropless"), ("skewed", "dropping")]


def job(experts, routing, drops):
    made = json.loads((FOLDER / "job.json").read_text())
    if experts == 1:
        return made
    made["model"] |= {"num_experts": experts, "num_experts_per_tok": 1,
                      "moe_intermediate_size": made["model"]["intermediate_size"]}
    moe = {"routing": "uniform" if routing == "balanced" else {"zipf": SKEW}}
    if drops == "dropping":
        moe["capacity_factor"] = CAPACITY
    made["plan"] |= {"ep": math.gcd(experts, made["cluster"]["gpus"]), "moe": moe}
    return made


def parameters(made):
    model = made["model"]
    hidden, layers = model["hidden_size"], model["num_hidden_layers"]
    mlp = 2 * hidden * model["intermediate_size"] * model.get("num_experts", 1)
    return (layers * (4 * hidden * hidden + mlp) + 2 * model["vocab_size"] * hidden) / 1e9


def simulated(made):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(made, file)
        file.flush()
        command = ["build/headway", "simulate", file.name, "--json", "-"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def row(experts, routing, drops):
    made = job(experts, routing, drops)
    step = simulated(made)
    exchanges = [line for line in step["communication"] if line["kind"] == "all_to_all"]
    return {
        "experts": experts, "parameters_G": round(parameters(made), 1), "routing": routing, "drops": drops,
        "step_s": round(step["iteration_time_s"], 4),
        "memory_GiB": round(step["memory"]["peak_bytes"] / 2**30, 1), "fits": step["fits"],
        "all_to_all_GB": round(sum(line["bytes_per_rank"] * line["count"] for line in exchanges) / 1e9, 2),
        "all_to_all_exposed_s": round(sum(line["exposed_s"] for line in exchanges), 4),
    }


def picture(rows):
    left, top, width, height = 70, 40, 480, 240
    most = max(each["step_s"] for each in rows)
    sizes = sorted({each["parameters_G"] for each in rows})
    x_of = {size: left + number * width / (len(sizes) - 1) for number, size in enumerate(sizes)}
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="640" height="400" font-family="sans-serif" '
             'font-size="12">',
             f'<text x="{left}" y="18" font-weight="bold">seconds a step by parameters; hollow: does not fit '
             'the memory</text>']
    for number, (routing, drops) in enumerate(KINDS):
        colour = ["#1f77b4", "#17becf", "#d62728", "#ff7f0e"][number]
        points = []
        for each in rows:
            if each["experts"] == 1 or (each["routing"], each["drops"]) == (routing, drops):
                points.append((x_of[each["parameters_G"]], top + height * (1 - each["step_s"] / most), each["fits"]))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" stroke="{colour}" '
                  f'fill="{colour if fits else "white"}"/>' for x, y, fits in points]
        parts.append(f'<text x="{left + 140 * number}" y="{top + height + 60}" fill="{colour}">'
                     f'{routing}, {drops}</text>')
    parts += [f'<text x="{x:.1f}" y="{top + height + 20}" text-anchor="middle">{size:g} G</text>'
              for size, x in x_of.items()]
    parts += [f'<text x="{left - 8}" y="{top + height * (1 - share) + 4:.1f}" text-anchor="end">'
              f'{most * share:.2f}</text>' for share in (0, 0.5, 1)]
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    rows = [row(experts, *kind) for experts in EXPERTS for kind in (KINDS if experts > 1 else KINDS[:1])]
    lines = [",".join(rows[0])] + [",".join(str(value) for value in each.values()) for each in rows]
    (FOLDER / "experts.csv").write_text("\n".join(lines) + "\n")
    (FOLDER / "experts.svg").write_text(picture(rows))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""Sentences about a synthetic set, from the part `synthetic` of a summary."""

from __future__ import annotations

from typing import Any

from fedchord.synthetic.traffic import Traffic


def notes(found: dict[str, Any]) -> list[str]:
    """The lines under the table of a run."""
    numbers, metric = found["numbers"], found["metric"]
    own = found["utility"]["synthetic"]["clients"][metric]
    lines = [
        f"{found['samples']} samples, {found['per_class']} per class; classifier: {found['classifier']}.",
        f"{metric}, mean over clients: synthetic {_n(own)}, as many real samples {_n(numbers['upper']['mean'])}, "
        f"random labels {_n(numbers['lower']['mean'])}{_all_real(numbers, 'real')}.",
    ]
    if "official" in numbers:
        first, *bounds = (_n(numbers[key]["mean"]) for key in ("official", "upper_official", "lower_official"))
        lines.append(
            f"{metric} on the official test rows: synthetic {first}, real samples {bounds[0]}, labels {bounds[1]}"
            f"{_all_real(numbers, 'real_official')}."
        )
    if found["quality"]:
        lines += quality_notes(found["quality"])
    if found["privacy"]:
        lines += privacy_notes(found["privacy"])
    sent = found["traffic"]
    return lines + Traffic(sent["up"], sent["down"], sent["parameters"]).told()


def _all_real(numbers: dict[str, dict[str, float | None]], name: str) -> str:
    return f", all real training rows {_n(numbers[name]['mean'])}" if name in numbers else ""


def quality_notes(near: dict[str, Any]) -> list[str]:
    """Distances and their floor."""
    low, kid = near["real_frechet"], near["real_kid"]
    return [
        f"{near['distance']} distance {near['frechet']:.4g} (as many real samples: {low[0]:.4g}, std {low[1]:.2g}), "
        f"KID {near['kid']:.4g} ({kid[0]:.2g}, std {kid[1]:.2g}); features {near['features']}, against "
        f"{near['reference']}."
    ]


def privacy_notes(seen: dict[str, Any]) -> list[str]:
    """Distances to training rows, and what they tell about who was there."""
    ours, theirs = seen["synthetic"], seen["real"]
    return [
        f"Distance to the nearest training row, median (smallest): samples {ours[0]:.3g} ({ours[1]:.3g}), "
        f"{seen['which']} {theirs[0]:.3g} ({theirs[1]:.3g}); {seen['closer']:.0%} of the samples are nearer than the "
        "nearest 1 % of those.",
        f"Membership by the distance to the nearest sample: AUROC {seen['membership']:.3f} "
        f"(0.5 tells nothing, standard error {seen['error']:.3f}; {seen['members']:,} members, {seen['others']:,} "
        "others).",
    ]


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"

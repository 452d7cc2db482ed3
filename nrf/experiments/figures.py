"""The figures of the paper from our runs, each as PNG, SVG and the data that was drawn (JSON)."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nrf.errors import InputError
from nrf.events.dataset import DatasetConfig
from nrf.experiments.design import DATASETS, MODELS, STATEFUL, Arm, ModelName, configuration, tuning_runs
from nrf.experiments.runs import DATA_SEED, Result
from nrf.experiments.study import Study, error, uniform_of
from nrf.fields.space import ORDERS, Field, fields, integrate, spatial_bank
from nrf.fields.time import density, time_constants
from nrf.files import make_folder
from nrf.model.neurons import LI

COLOURS = {"rf": "#c0392b", "uniform": "#2c6fb0"}
Data = dict[str, Any]
Draw = Callable[[Any, Data], None]
OfSeeds = Callable[[list[Result]], Any]  # an axis, from the results of an arm


def write_figures(study: Study, folder: Path) -> list[Path]:
    """All figures for which there are runs; the PNG files."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib; pip install 'nrf[figures]'") from None
    make_folder(folder)
    paths = []
    for name, size, collect, draw in FIGURES:
        if data := collect(study):
            figure = Figure(size, layout="constrained")
            draw(figure, data)
            for kind in ("png", "svg"):
                figure.savefig(
                    folder / f"{name}.{kind}", dpi=110, metadata={"Date": None} if kind == "svg" else None
                )
            (folder / f"{name}.json").write_text(json.dumps(data) + "\n")
            paths.append(folder / f"{name}.png")
    return paths


def _round(values: Any, digits: int = 4) -> Any:
    return np.round(np.asarray(values, dtype=float), digits).tolist()


def scales(study: Study) -> Data:
    """Receptive fields over space (columns) and time (rows), 4 spatial by 4 temporal scales."""
    x, t = np.linspace(-20, 20, 81), np.linspace(0.25, 16, 64)
    panels = []
    for sigma in (1, 2, 4, 8):
        profile = np.exp(-(x**2) / (2 * sigma**2)) * -x / sigma  # first derivative, scale-normalised
        panels.append([_round(np.outer(density(t, float(mu)) * mu, profile), 3) for mu in (1, 2, 4, 8)])
    return {"sigma": [1, 2, 4, 8], "mu": [1, 2, 4, 8], "x": _round(x, 2), "t": _round(t, 2), "fields": panels}


def draw_scales(figure: Any, data: Data) -> None:
    axes = figure.subplots(4, 4, sharex=True, sharey=True)
    for row, sigma in enumerate(data["sigma"]):
        for column, mu in enumerate(data["mu"]):
            panel, values = axes[row, column], np.array(data["fields"][row][column])
            top = np.abs(values).max()
            extent = (data["x"][0], data["x"][-1], data["t"][-1], data["t"][0])
            panel.imshow(values, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto", extent=extent)
            panel.set_title(f"σ = {sigma} px, μ = {mu} steps", fontsize=7)


def bank(study: Study) -> Data:
    """The 144 kernels, drawn five times larger than the 9x9 that networks start from."""
    fine = [integrate(Field(f.scale * 5, f.orientation, f.skew, f.order), 33) for f in fields()]
    return {"kernels": _round([kernel / np.abs(kernel).max() for kernel in fine], 2)}


def draw_bank(figure: Any, data: Data) -> None:
    axes = figure.subplots(9, 16)
    for panel, kernel in zip(axes.flat, data["kernels"], strict=True):
        panel.imshow(kernel, cmap="RdBu_r", vmin=-1, vmax=1)
        panel.set_axis_off()


def responses(study: Study) -> Data:
    """A clip of events, and what leaky integrators with four fields and four time constants make of it."""
    import torch
    from torch.nn import functional

    config = configuration(tuning_runs(Arm("LI", "rf", "rf", "temporal"), study.size)[0], study.size)
    clip = DatasetConfig("experiments", 4, DATA_SEED, config.data.shapes).clip(3)
    frames = torch.from_numpy(clip.frames()).sum(1)[:, None, None]  # (T, 1, 1, H, W)
    kernels = torch.from_numpy(spatial_bank([Field(1.6, order=order) for order in ORDERS])).float()
    drive = functional.conv2d(frames.flatten(0, 1), kernels[:, None], padding=4)[:, None]
    taus = time_constants(8.0, 4, 2.0)
    maps = [LI(float(tau), dt=1.0)(drive)[0][:, 0].detach() for tau in taus]  # per tau: (T, 4, H, W)
    return {
        "mu": _round(taus), "events": _round(frames.sum(0)[0, 0], 0),
        "maps": [_round(m[-1], 3) for m in maps],
        "traces": [_round(m.abs().mean(dim=(1, 2, 3)), 5) for m in maps],
    }  # fmt: skip


def draw_responses(figure: Any, data: Data) -> None:
    axes = figure.subplots(2, 5)
    axes[0, 0].imshow(data["events"], cmap="Greys")
    axes[0, 0].set_title("events of the clip", fontsize=8)
    for number in range(4):
        for row, mu in enumerate((0, 3)):
            values = np.array(data["maps"][mu][number])
            top = max(np.abs(values).max(), 1e-9)
            axes[row, number + 1].imshow(values, cmap="RdBu_r", vmin=-top, vmax=top)
            axes[row, number + 1].set_title(f"field {number + 1}, μ = {data['mu'][mu]:g}", fontsize=8)
    for mu, trace in zip(data["mu"], data["traces"], strict=True):
        axes[1, 0].plot(trace, label=f"μ = {mu:g}")
    axes[1, 0].set_title("mean |response| over steps", fontsize=8)
    axes[1, 0].legend(fontsize=6)
    for panel in [*axes[0], *axes[1, 1:]]:
        panel.set_axis_off()


def distributions(study: Study) -> Data:
    """Test error of every seed, and the effect of the initialisation."""
    data: Data = {}
    for dataset in DATASETS:
        for model in MODELS:
            rf = Arm(model, "rf", "rf", dataset)
            if effect := study.compare(rf, uniform_of(rf)):
                data.setdefault(dataset, {})[model] = {
                    "rf": [error(result) for result in study.results(rf)],
                    "uniform": [error(result) for result in study.results(uniform_of(rf))],
                    "d": _round([effect.d, effect.low, effect.high], 2),
                    "percent": round(effect.percent or 0.0, 1),
                }  # fmt: skip
    return data


def draw_distributions(figure: Any, data: Data) -> None:
    for panel, (dataset, models) in zip(_panels(figure, len(data)), data.items(), strict=True):
        for place, values in enumerate(models.values()):
            for side, init in ((-0.15, "rf"), (0.15, "uniform")):
                errors = values[init]
                panel.plot(
                    [place + side] * len(errors), errors, "o", color=COLOURS[init], alpha=0.6, markersize=4
                )
                panel.plot(
                    [place + side - 0.1, place + side + 0.1], [np.mean(errors)] * 2, color=COLOURS[init]
                )
            d, low, high = values["d"]
            top = max(*values["rf"], *values["uniform"])
            text = f"{values['percent']:+.0f} %\nd {d:.1f}\n[{low:.1f}, {high:.1f}]"
            panel.text(place, top + 0.1, text, ha="center", va="bottom", fontsize=7)
        panel.set_xticks(range(len(models)), list(models))
        panel.set_title(f"{dataset}: red RF, blue uniform")
        panel.set_ylabel("error on test clips, px")
        panel.margins(y=0.25)


def generalisation(study: Study) -> Data:
    """Test error by scale or velocity, mean over seeds."""
    errors = lambda rs: _mean([[e for _, e in r.by_condition] for r in rs])  # noqa: E731
    return _by_arm(study, STATEFUL, errors, lambda results: [value for value, _ in results[0].by_condition])


def learning(study: Study) -> Data:
    """Validation error through training, mean over seeds."""
    errors = lambda rs: [rs[0].centre, *_mean([[e for _, e in r.curve] for r in rs])]  # noqa: E731
    return _by_arm(study, MODELS, errors, _steps)


def taus(study: Study) -> Data:
    """Time constants of the channels through training, every seed."""
    constants = lambda results: [_round([t[:-1] for t in r.taus], 3) for r in results]  # noqa: E731
    return _by_arm(study, STATEFUL, constants, _steps)


def _steps(results: Sequence[Result]) -> list[int]:
    return [0, *(step for step, _ in results[0].curve)]


def _by_arm(
    study: Study,
    models: Sequence[ModelName],
    y: Callable[[list[Result]], Any],
    x: Callable[[list[Result]], Any],
) -> Data:
    data: Data = {}
    for dataset in DATASETS:
        for model in models:
            for init in ("rf", "uniform"):
                if results := study.results(Arm(model, init, init, dataset)):
                    data.setdefault(f"{model} {dataset}", {})[init] = {"x": x(results), "y": y(results)}
    return data


def draw_lines(label: str, logarithmic: bool) -> Draw:
    """One panel per model and dataset, RF red, uniform blue; several seeds and channels where there are."""

    def draw(figure: Any, data: Data) -> None:
        for panel, (title, inits) in zip(_panels(figure, len(data)), data.items(), strict=True):
            for init, lines in inits.items():
                y = np.array(lines["y"])
                for seed in y if y.ndim == 3 else [y]:
                    panel.plot(lines["x"], seed, "-" if y.ndim == 3 else "o-", color=COLOURS[init], alpha=0.7)
            if logarithmic:
                panel.set_yscale("log", base=2)
            elif max(lines["x"]) < 40:
                panel.set_xscale("log", base=2)
            panel.set_title(title, fontsize=8)
            panel.set_ylabel(label, fontsize=7)

    return draw


def _mean(values: Sequence[Sequence[float]]) -> Any:
    return _round(np.mean(values, axis=0))


def _panels(figure: Any, count: int) -> list[Any]:
    columns = min(4, count)
    return list(figure.subplots(-(-count // columns), columns, squeeze=False).flat)[:count]


FIGURES: tuple[tuple[str, tuple[float, float], Callable[[Study], Data], Draw], ...] = (
    ("fields", (8, 7), scales, draw_scales),
    ("bank", (9, 5), bank, draw_bank),
    ("responses", (10, 4.2), responses, draw_responses),
    ("distributions", (10, 4.5), distributions, draw_distributions),
    ("generalisation", (11, 3), generalisation, draw_lines("error, px", False)),
    ("time_constants", (11, 3), taus, draw_lines("time constant, steps", True)),
    ("learning", (11, 5.5), learning, draw_lines("held-out error, px", False)),
)

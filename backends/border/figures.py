"""Every figure that a comparison gives, by name; a chip's TOML has tolerances `<figure>_min` and `_max`."""

JITTER = 2  # steps by which a spike may move and still count in `f1_jitter`
TAU = 5.0  # steps, time constant of the van Rossum distance

RUNGS = {
    "rules": "limits of the chip that a model must keep to",
    "input": "whether the input says anything about the model",
    "contract": "whether what was assumed about the model's steps decides anything",
    "L0": "bit-exact: each runtime against builtin, spikes and membranes identical",
    "L1": "taught: every population is fed the reference's spikes, so that its own error shows",
    "L2": "free-running: spikes of the runtime against those of the reference",
    "L3": "task: what the host makes of the output, coordinates or classes",
    "golden": "against a recording of somebody else's software",
}

FIGURES = {
    "f1": "spikes at the same neuron and step, F1",
    "f1_jitter": f"the same, spikes may be {JITTER} steps apart",
    "precision": "candidate spikes that the reference has too",
    "recall": "reference spikes that the candidate has too",
    "count_error": "difference of the spike counts of the population / reference count",
    "neuron_count_error": "sum over neurons of the difference of their counts / reference count",
    "van_rossum": f"van Rossum distance per reference spike, tau {TAU:g} steps",
    "spikes_differ": "number of spikes that only one side has",
    "membrane": "largest membrane error / max(threshold, |v|), until the neuron's spikes first differ",
    "membrane_rms": "the same, root of the mean square",
    "membrane_differ": "largest membrane difference at any step, volts",
    "reference_spikes": "number of spikes of the reference",
    "candidate_spikes": "number of spikes of the candidate",
    "latency": "declared, steps",
    "lag": "measured, steps: where the candidate fits best",
    "px_median": "distance of the coordinates to the reference's, pixels, median",
    "px_p95": "the same, 95th percentile",
    "truth_median": "distance of the coordinates to the truth, pixels, median",
    "truth_p95": "the same, 95th percentile",
    "agreement": "clips for which the class is the reference's (or golden's), of all that are decided",
    "accuracy": "clips for which the class is the label, of all that have one",
    "accuracy_drop": "accuracy of the reference minus that of the candidate",
    "margin": "score of the first class minus that of the second (spikes or volts), median over clips",
    "clips": "number of clips, times repeats",
    "clips_agree": "number of clips for which the class is the reference's (or golden's)",
    "clips_decided": "number of clips in which either side decides",
    "undecided": "number of clips in which all classes have the same score",
    "spread": "largest relative difference between the spike counts of repeated runs",
}

"""Whom we are measured against: Lava, Sinabs, and the plainest loop in C; each gives CPU seconds of a run."""

import ctypes
import json
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.programs import layers, sizes
from nrf.backends.border import Recording
from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.run import run_lava
from nrf.backends.lowering.scatter import phases
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.run import WORKER
from nrf.backends.vendors.environment import python_of

Frames = NDArray[np.generic]


def lava_seconds(program: LoihiProgram, frames: Frames) -> tuple[Recording, float]:
    """Lava's CPU time for these frames, of all its processes; a clip of one step takes start and end away."""

    def once(clip: Frames) -> tuple[Recording, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        recording = run_lava(program, clip, states=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return recording, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    recording, long = once(frames)
    return recording, (long - once(frames[:1])[1]) * len(frames) / (len(frames) - 1)


SINABS = """
import ctypes, json, sys, time
mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
if mallopt is not None:  # freed memory is kept, as on our side
    mallopt(-3, 64 << 20), mallopt(-1, 1 << 30)
import numpy as np, torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
import worker
with np.load(sys.argv[2]) as file:
    arrays = {name: file[name] for name in file.files}
header = json.loads(arrays.pop("header").tobytes())["program"]
frames = np.load(sys.argv[3])["frames"]
for line in sys.stdin:
    start = time.process_time()
    spikes, _ = worker.simulate(header, arrays, frames, record=False)
    seconds, counts, sums = time.process_time() - start, [], []
    for s in spikes.values():
        n = s.numpy().astype(np.int64).reshape(len(s), -1)
        counts.append(int(n.sum()))
        sums.append(int(((n * np.arange(1, n.shape[1] + 1)).sum(1) * np.arange(1, len(n) + 1)).sum()))
    print(json.dumps([seconds, counts + sums]), flush=True)
"""


class Peer:
    """Another's simulator in its own environment; waits between runs, so that both sides can take turns."""

    def __init__(self, vendor: str, code: str, folder: tempfile.TemporaryDirectory[str], *files: str) -> None:
        self.folder = folder
        command = [str(python_of(vendor)), "-I", "-c", code, *files]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self) -> tuple[list[int], float]:
        """What it counted, to be held against ours, and CPU time."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        seconds, spikes = json.loads(self.process.stdout.readline())
        return spikes, seconds

    def close(self) -> None:
        """End the process."""
        self.process.communicate()
        self.folder.cleanup()


class Sinabs(Peer):
    """Quantised Sinabs: spikes of every layer, and the sums of their places."""

    def __init__(self, program: SpeckProgram, frames: Frames) -> None:
        folder = tempfile.TemporaryDirectory()
        files = [f"{folder.name}/{name}" for name in ("program.npz", "frames.npz")]
        program.save(files[0])
        np.savez(files[1], frames=frames)
        super().__init__("sinabs", SINABS, folder, str(WORKER.parent), *files)


SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
enum { H, W, C, OH, OW, SY, SX, PY, PX, TY, TX, THRESHOLD, WEIGHT, STATE, FIELDS };
static int32_t decay(int32_t x, int64_t keep) { return (int32_t)((int64_t)x * keep / 4096); }
/* Every step and layer: each spike adds its rows of weights, then every neuron is updated. */
void run(int loihi, int steps, const int32_t *event, const int64_t *begin, int layers, const int64_t *table,
         const int32_t *weights, int32_t *v, int32_t *drive, int32_t *spikes, int64_t *total) {
  int64_t *held = calloc(layers, sizeof *held);
  for (int t = 0; t < steps; t++)
    for (int k = 0; k < layers; k++) {
      int l = loihi ? layers - 1 - k : k; /* on Loihi a spike takes a step */
      const int64_t *g = table + l * FIELDS;
      int64_t n = l ? held[l - 1] : begin[t + 1] - begin[t];
      const int32_t *list = l ? spikes + table[(l - 1) * FIELDS + STATE] : event + begin[t];
      if (l == 0 && loihi) { n = t ? begin[t] - begin[t - 1] : 0; list = event + (t ? begin[t - 1] : 0); }
      int h = g[H], w = g[W], c = g[C], oh = g[OH], ow = g[OW], ty = g[TY], tx = g[TX];
      int32_t *d = drive + g[STATE], *x = v + g[STATE];
      for (int64_t e = 0; e < n; e++) {
        int ch = list[e] / (h * w), p = list[e] % (h * w), y = p / w + g[PY], z = p % w + g[PX];
        int top = y / (int)g[SY] - (ty - 1), left = z / (int)g[SX] - (tx - 1);
        int fy = top < 0 ? -top : 0, ly = oh - top < ty ? oh - top : ty;
        int fx = left < 0 ? -left : 0, lx = ow - left < tx ? ow - left : tx;
        const int32_t *q = weights + g[WEIGHT]
          + (int64_t)((ch * g[SY] + y % g[SY]) * g[SX] + z % g[SX]) * ty * tx * c;
        for (int j = fy; j < ly; j++) {
          int32_t *o = d + ((top + j) * ow + left + fx) * c;
          const int32_t *r = q + (j * tx + fx) * c;
          for (int a = 0; a < (lx - fx) * c; a++) o[a] += r[a];
        }
      }
      int32_t *out = spikes + g[STATE];
      int64_t fired = 0;
      int32_t threshold = g[THRESHOLD];
      for (int p = 0; p < oh * ow; p++)
        for (int a = 0; a < c; a++) {
          int i = p * c + a;
          int32_t s = loihi ? decay(x[i], 4096 - 512) + (d[i] << 6) : x[i] + d[i];
          d[i] = 0;
          if (loihi ? s > threshold : s >= threshold) {
            out[fired++] = a * oh * ow + p;
            s = loihi ? 0 : s - threshold;
          }
          x[i] = !loihi && s < -400 ? -400 : s;
        }
      held[l] = fired;
      total[l] += fired;
    }
  free(held);
}
"""


class CLoop:
    """The additions and neurons of a program in C, as plain as can be; the compiler does its best."""

    def __init__(self, program: LoihiProgram | SpeckProgram, frames: Frames) -> None:
        self.folder = tempfile.TemporaryDirectory()
        source, library = (Path(self.folder.name) / name for name in ("loop.c", "loop.so"))
        source.write_text(SOURCE)
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
        flags = "-O3", "-march=native", "-shared", "-fPIC"
        subprocess.run([compiler, *flags, "-o", str(library), str(source)], check=True)
        self.run = ctypes.CDLL(str(library)).run
        convs = layers(program)
        kernels = [phases(conv) for conv, _ in convs]
        weight = np.cumsum([0, *(kernel.size for kernel in kernels)])
        state = np.cumsum([0, *sizes(program)])
        self.table = np.array(
            [
                (*conv.input_shape[1:], *conv.output_shape, *conv.stride, *conv.padding, *kernel.shape[3:5],
                 threshold, weight[k], state[k])
                for k, ((conv, threshold), kernel) in enumerate(zip(convs, kernels, strict=True))
            ],
            np.int64,
        )  # fmt: skip
        self.weights = np.concatenate([kernel.ravel() for kernel in kernels])
        flat = frames.reshape(len(frames), -1)
        self.events = np.nonzero(flat)[1].astype(np.int32)
        self.begins = np.cumsum([0, *np.count_nonzero(flat, axis=1)])
        self.loihi, self.neurons, self.steps = isinstance(program, LoihiProgram), int(state[-1]), len(frames)

    def seconds(self) -> tuple[list[int], float]:
        """Spikes of every layer, and CPU time."""
        arrays = [np.zeros(self.neurons, np.int32) for _ in range(3)]
        total = np.zeros(len(self.table), np.int64)
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in (
            self.events, self.begins, self.table, self.weights, *arrays, total)]  # fmt: skip
        start = time.process_time()
        head, tail = (int(self.loihi), self.steps), (len(self.table),)
        self.run(*head, *pointers[:2], *tail, *pointers[2:])
        return list(map(int, total)), time.process_time() - start

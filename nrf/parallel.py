"""Work in several processes that end with the one that started them, however that ends."""

import os
import threading
import time
from typing import Any

from joblib import Parallel

from nrf.errors import InputError


def parallel(jobs: int, **options: Any) -> Parallel:
    """joblib's `Parallel`; its workers would outlive a killed parent and wait for work for minutes.

    >>> from joblib import delayed
    >>> parallel(1)(delayed(abs)(number) for number in (-1, 2))
    [1, 2]
    """
    if jobs == 0:
        raise InputError("jobs is 0; give a number of processes, or -1 for all cores")
    return Parallel(n_jobs=jobs, initializer=_end_with, initargs=(os.getpid(),), **options)


def _end_with(parent: int) -> None:
    """End this worker soon after its parent has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.25)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

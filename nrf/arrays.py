"""Arrays of integers by the width that they have: what is 32 bit on a chip and what counts past it."""

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

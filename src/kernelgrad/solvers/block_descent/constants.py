"""Constants of block descent, each with what it is for.

Where a number is a compromise it was measured on the benchmarks of the solver; none is part of
the model: other values give the same minimum, sooner or later.
"""

from __future__ import annotations

import numpy as np

# -- blocks and memory
WIDTH = 1024  # coordinates in a block of many rows; see `block_size`
WHOLE = 2048  # up to so many rows one block holds them all
FEATURE_BLOCKS = 16
STORE_BYTES = 2 * 2**30  # of kept block values unless a memory limit is given
WORK_BYTES = 64 * 2**20  # Hessian, its sample and tiles
LEAST_WORK = 18_000_000  # of these, with few threads: least beside arrays of a block
# Rows of the Hessian's sample for each coordinate of a block: where the values of a block are
# too many to be kept, one step must do, and a better one costs little beside the values.
HESSIAN_ROWS, MANY_HESSIAN_ROWS = 4, 16
HESSIAN_TILE = 512  # sampled rows that one task takes
PART_BYTES = 2**23 + 2**13  # of kernel values that its sum takes at once
MOST_INNER = 10  # Newton steps on a block
REJECTIONS, MOST_REJECTIONS = 4, 16  # blocks in a row without a step that end the fit
CHUNK = 65_536  # rows that a loss without loops of its own sees at once

# -- audits
AUDIT_EVERY = 16  # blocks
DOUBT = 1e-2  # of the constant's objective, above which a function is not returned
# Of the objective: the drift beyond three standard errors above which responses are made anew,
# which takes as long as some ten blocks, and the standard error above which they are anyway.
DRIFT, DOUBTFUL = 1e-5, 1e-3

# -- Newton steps
DAMPING = 1e-2  # of the first step, in units of the block's mean curvature
LEAST_DAMPING, MOST_DAMPING = 1e-9, 1e3
STALE = 10.0  # times the damping wanted: a factor with so much serves
# On coefficients, in units of the Hessian's mean diagonal. The Hessian squares the condition of
# the kernel values: summed in float32 it would need 1e-5, which hides all but the smoothest
# part of a smooth kernel from every block. Summed in float64 it takes the least, and more, up
# to the safe one, where rounding could cost more of the objective than is allowed: in the
# responses, or in the norm, where steps on few blocks, visited again and again, exploit it.
JITTER, JITTER_GRAM, MOST_JITTER = 1e-11, 1e-5, 1e-3
SAFE_JITTER = 1e-6, 1e-5  # of one block, of many
LOST_ROWS, LOST_NORM, MOST_LOST_NORM = 1e-4, 1e-7, 1e-5  # the second for each block
LOST_SAFE = 1e-3  # of rows, with the safe jitter and more
# With few labels most directions have no curvature but the kernel's own, and float32 kernel
# values give some of them a negative norm: coefficients grew to 3,000 along them.
JITTER_SIDES = 1e-4
SLOPE_RATIO = 0.3  # of a slope: most that the cached one may differ from it
EPSILON = 6e-8  # of float32
MOST_NOISE = 1e-3  # of f in an exponential
ROUNDING = 5e-7  # of the terms of the objective: smaller falls are not trusted
# conjugate gradients: steps and squared residual left, where the sample is all rows and else
CONJUGATE_EXACT, CONJUGATE_SAMPLED = (20, 1e-3), (5, 1e-2)

KEPT = 0.7  # of the way of the blocks before, in the direction searched beside a block's own

# -- the end of a fit, and smoothing
LEAST_SHARE = 1e-2  # of the first objective, that the tolerance refers to at least
INITIAL_WIDTH = 0.5  # of smoothing, in units of the margin or of the targets' spread
NARROW = 0.5, 0.3  # factors of the width: as a rule, and where it holds up the end
WINDOW = 4  # blocks whose gain is compared with the error of smoothing
LEAST_WIDTH = 1e-6  # of the first one

# -- rows without a label
SHARES = 0.0, 0.1, 0.3, 1.0  # of their loss, one after another: sides follow labels
STAGE = 3  # blocks at most before the share grows
SETTLED = 10.0  # tolerances of gain below which it grows at once

# -- the minimum on a span of three directions
NEWTON = 6  # steps at most
BACKTRACKS, SHORTER, ARMIJO = 12, 0.3, 1e-4  # of each step
RIDGE = 1e-6  # of the unit diagonal of a scaled Hessian
COLLINEAR = 1e-5  # eigenvalue of it below which directions count twice
NOTHING = 1e-290  # a diagonal entry that is none
LONGEST = np.array([0.9, 8.0, 8.0])  # steps along scale, step and momentum

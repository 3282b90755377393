"""RUM over a whole sequence."""

from gyral.ops.rum.sequence import (
    Gradients as Gradients,
)
from gyral.ops.rum.sequence import (
    Kernels as Kernels,
)
from gyral.ops.rum.sequence import (
    Options as Options,
)
from gyral.ops.rum.sequence import (
    Problem as Problem,
)
from gyral.ops.rum.sequence import (
    Solution as Solution,
)
from gyral.ops.rum.sequence import (
    kernels_for as kernels_for,
)
from gyral.ops.rum.sequence import (
    scan as scan,
)
from gyral.ops.rum.sequence import (
    subcell_problem as subcell_problem,
)

"""Fast-slow networks over a whole sequence."""

from gyral.ops.fast_slow.sequence import (
    Gradients as Gradients,
)
from gyral.ops.fast_slow.sequence import (
    Order as Order,
)
from gyral.ops.fast_slow.sequence import (
    Problem as Problem,
)
from gyral.ops.fast_slow.sequence import (
    Solution as Solution,
)
from gyral.ops.fast_slow.sequence import (
    SubCell as SubCell,
)
from gyral.ops.fast_slow.sequence import (
    run as run,
)
from gyral.ops.fast_slow.sequence import (
    unsupported_reason as unsupported_reason,
)

"""Recurrences made of one product and functions of rows, over a whole sequence."""

from gyral.ops.gated.sequence import (
    KEEPS_PRODUCT as KEEPS_PRODUCT,
)
from gyral.ops.gated.sequence import (
    KINDS as KINDS,
)
from gyral.ops.gated.sequence import (
    Gradients as Gradients,
)
from gyral.ops.gated.sequence import (
    Problem as Problem,
)
from gyral.ops.gated.sequence import (
    Solution as Solution,
)
from gyral.ops.gated.sequence import (
    of_weight as of_weight,
)
from gyral.ops.gated.sequence import (
    run as run,
)
from gyral.ops.gated.sequence import (
    unsupported_reason as unsupported_reason,
)

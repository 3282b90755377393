"""A generated world in the manner of CLEVR: objects at places that do not overlap."""

from typing import NamedTuple

import numpy as np

from gyral.applications.scenes.data.language import ATTRIBUTES

WIDTH, HEIGHT = 112, 80  # of an image, in pixels
RADII = {"small": 5.0, "large": 8.0}
MARGIN = 2.0  # smallest difference of two objects in x and in y, so that relations are unambiguous
TRIES = 40  # random positions for an object, before the scene is drawn again


class Scene(NamedTuple):
    """The objects of a scene.

    Attributes:
        values: (N, 4), the value of each attribute, as an index in `ATTRIBUTES`.
        positions: (N, 2), x to the right and y down, in pixels.
    """

    values: np.ndarray
    positions: np.ndarray


def draw_scene(generator: np.random.Generator, objects: int) -> Scene:
    """Draw a scene with a number of objects, whose attributes and positions are independent and uniform."""
    values = np.stack([generator.integers(len(names), size=objects) for names in ATTRIBUTES.values()], axis=1)
    sizes = values[:, list(ATTRIBUTES).index("size")].tolist()
    radii = [RADII[ATTRIBUTES["size"][size]] for size in sizes]
    while (places := _draw_places(generator, radii)) is None:
        pass
    return Scene(values, np.array(places))


def _draw_places(generator: np.random.Generator, radii: list[float]) -> list[tuple[float, float]] | None:
    """Return positions for objects of the given radii, or None if an object does not find a position."""
    found = list[tuple[float, float]]()
    for radius in radii:
        border = radius + 1
        for share_x, share_y in generator.random((TRIES, 2)).tolist():
            x, y = border + share_x * (WIDTH - 2 * border), border + share_y * (HEIGHT - 2 * border)
            if all(
                abs(x - other_x) >= MARGIN
                and abs(y - other_y) >= MARGIN
                and (x - other_x) ** 2 + (y - other_y) ** 2 > (radius + other) ** 2
                for (other_x, other_y), other in zip(found, radii, strict=False)
            ):
                found.append((x, y))
                break
        else:
            return None
    return found

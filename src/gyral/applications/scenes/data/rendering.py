"""Pictures of scenes: cubes, spheres and cylinders in eight colors, dull or shiny, seen from the front."""

from collections.abc import Sequence

import numpy as np

from gyral.applications.scenes.data.language import ATTRIBUTES
from gyral.applications.scenes.data.world import HEIGHT, RADII, WIDTH, Scene

COLORS = {  # the colors of CLEVR
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}
PATCH = 20  # side of the square of an object, in pixels
NOISE = 3.0  # standard deviation of the noise of a pixel, of 255
BRIGHTNESS = 0.1  # largest relative deviation of the brightness of an object
SHINE = 170.0  # brightness of the spot of a shiny object


def render(scenes: Sequence[Scene], generator: np.random.Generator) -> np.ndarray:
    """Return pictures of scenes, (n, HEIGHT, WIDTH, 3) uint8; noise and brightness are drawn."""
    values = np.concatenate([scene.values for scene in scenes])
    places = np.concatenate([scene.positions for scene in scenes]).astype(np.float32)
    corners = np.floor(places).astype(int) - PATCH // 2 + 1
    surface, alpha = _draw(values, places - corners, generator)
    pad = PATCH  # of the canvas, for objects near the border
    ground = np.linspace(175, 205, HEIGHT, dtype=np.float32)[:, None, None]
    noise = generator.standard_normal((HEIGHT, WIDTH, 3), dtype=np.float32)
    images = np.empty((len(scenes), HEIGHT, WIDTH, 3), dtype=np.uint8)
    canvas, index = np.zeros((HEIGHT + 2 * pad, WIDTH + 2 * pad, 3), dtype=np.float32), 0
    for image, scene in zip(images, scenes, strict=True):
        inside = canvas[pad:-pad, pad:-pad]
        # one field of noise for all, shifted, because drawing it would take longer than everything else
        inside[:] = ground + NOISE * np.roll(noise, tuple(generator.integers(HEIGHT, size=2)), axis=(0, 1))
        for _ in scene.values:
            left, top = corners[index] + pad
            part = canvas[top : top + PATCH, left : left + PATCH]
            part += alpha[index] * (surface[index] - part)
            index += 1
        image[:] = np.clip(inside, 0, 255)
    return images


def _draw(values: np.ndarray, places: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return colors (M, PATCH, PATCH, 3) and opacity (M, PATCH, PATCH, 1) of M objects at places in their patches."""
    shape, color, size, material = values.T
    radii = np.array([RADII[name] for name in ATTRIBUTES["size"]], dtype=np.float32)[size, None, None]
    pixels = np.arange(PATCH, dtype=np.float32)
    x = (pixels - places[:, 0, None, None]) / radii  # −1 to 1 within the object
    y = (pixels[:, None] - places[:, 1, None, None]) / radii
    x, y = np.broadcast_arrays(x, y)
    distance, light = np.empty_like(x), np.empty_like(x)
    for number, name in enumerate(ATTRIBUTES["shape"]):
        own = shape == number
        distance[own], light[own] = _shape(name, x[own], y[own])
    brightness = 1 + generator.uniform(-BRIGHTNESS, BRIGHTNESS, len(values))[:, None]
    colors = np.array(list(COLORS.values()))[color] * brightness
    surface = colors[:, None, None].astype(np.float32) * light[..., None]
    is_shiny = (material == ATTRIBUTES["material"].index("metal"))[:, None, None]
    surface += (SHINE * is_shiny * np.exp(-12 * ((x + 0.3) ** 2 + (y + 0.35) ** 2)))[..., None]
    return surface, np.clip(0.5 - radii * distance, 0, 1)[..., None]


def _shape(shape: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the signed distance to the outline of a shape, negative inside, and the light on each point."""
    if shape == "sphere":
        distance = np.hypot(x, y)
        return distance - 1, 1.1 - 0.3 * distance**2
    if shape == "cube":
        return np.maximum(np.abs(x), np.abs(y)) - 0.85, np.where(y < -0.4, 1.25, 0.9)  # the upper face is brighter
    lid = np.hypot(x / 0.7, (y + 0.65) / 0.3) - 1
    foot = np.hypot(x / 0.7, (y - 0.65) / 0.3) - 1
    side = np.maximum(np.abs(x) - 0.7, np.abs(y) - 0.65)
    distance = np.minimum(np.minimum(0.3 * lid, 0.3 * foot), side)
    return distance, np.where(lid < 0, 1.25, 1.05 - 0.35 * (x / 0.7) ** 2)

"""Each detail of the two recipes' input, against a naive implementation, image by image."""

import numpy as np
import pytest
import torch

from worker import TrainConfig
from worker.data.augment import augment, crop, draw_epoch, pixels_on, plain
from worker.data.prepared import DatasetInfo

SIDE, COUNT = 8, 40


def info(name="set", channels=3):
    return DatasetInfo(
        name=name,
        num_train=COUNT,
        num_test=1,
        shape=(SIDE, SIDE, channels),
        classes=("a", "b"),
        train_counts=(COUNT, 0),
        test_counts=(1, 0),
        channel_means=(100.0, 110.0, 120.0)[:channels],
        channel_deviations=(50.0, 55.0, 60.0)[:channels],
        checksum="",
        source="",
    )


def images(channels=3):
    rng = np.random.default_rng(3)
    return rng.integers(0, 256, (COUNT, SIDE, SIDE, channels), np.uint8)


def bind(recipe, name="set", **fields):
    config = TrainConfig(recipe=recipe, **fields).resolved()
    array = images()
    pixels = pixels_on(
        config, info(name), torch.from_numpy(array), torch.zeros(COUNT, dtype=torch.int64)
    )
    return array, pixels


def drawn(pixels, flip=True, seed=0, epoch=0, count=COUNT):
    order = torch.arange(count)
    return draw_epoch(order, pixels.pad, flip, seed=seed, epoch=epoch, device=torch.device("cpu"))


def naive_tf(image, down, right, flip):
    """Pad by 2 with zeros, crop, flip, standardise by the image's own mean."""
    padded = np.pad(image.astype(np.float64), ((2, 2), (2, 2), (0, 0)))
    out = padded[down : down + SIDE, right : right + SIDE]
    out = out[:, ::-1] if flip else out
    return (out - out.mean()) / max(out.std(), 1 / np.sqrt(out.size))


def naive_wrn(image, down, right, flip):
    """Standardise by channel, flip, pad by 4 with the edge, crop."""
    out = (image - np.array([100, 110, 120.0])) / np.array([50, 55, 60.0])
    out = out[:, ::-1] if flip else out
    padded = np.pad(out, ((4, 4), (4, 4), (0, 0)), mode="edge")
    return padded[down : down + SIDE, right : right + SIDE]


@pytest.mark.parametrize(("recipe", "naive"), [("paper-tf", naive_tf), ("paper-wrn", naive_wrn)])
def test_a_batch_equals_the_recipe_done_image_by_image(recipe, naive):
    array, pixels = bind(recipe)
    draws = drawn(pixels)

    found = augment(pixels, draws).permute(0, 2, 3, 1).double().numpy()

    rows = zip(draws.order, draws.down, draws.right, draws.flip, strict=True)
    expected = [naive(array[i], int(d), int(r), bool(f)) for i, d, r, f in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_an_image_of_one_colour_is_divided_by_the_floor_and_not_by_zero():
    _, pixels = bind("paper-tf", crop_pad=0)
    flat = torch.full((1, SIDE, SIDE, 3), 77, dtype=torch.uint8)
    nearly = flat.clone()
    nearly[0, 0, 0, 0] = 78

    found = [plain(pixels_like(pixels, x), torch.tensor([0])) for x in (flat, nearly)]

    assert found[0].abs().max() == 0
    # One pixel of N = 192 is 1 brighter: its deviation, sqrt(N - 1) / N, is just below the floor.
    size = 3 * SIDE * SIDE
    assert found[1].max().item() == pytest.approx((1 - 1 / size) * size**0.5, rel=1e-5)


def pixels_like(pixels, tensor):
    return type(pixels)(tensor, pixels.labels, pixels.channel, pixels.pad, pixels.fill)


def test_cifar_is_standardised_by_the_published_numbers_and_others_by_their_own():
    array, published = bind("paper-wrn", name="cifar10")
    _, own = bind("paper-wrn")
    index = torch.tensor([5])

    first = array[5, 0, 0]
    expected = (first - np.array([125.3, 123.0, 113.9])) / np.array([63.0, 62.1, 66.7])
    np.testing.assert_allclose(plain(published, index)[0, :, 0, 0], expected, rtol=1e-5)
    expected = (first - np.array([100.0, 110, 120])) / np.array([50.0, 55, 60])
    np.testing.assert_allclose(plain(own, index)[0, :, 0, 0], expected, rtol=1e-5)


def test_evaluation_neither_crops_nor_flips():
    array, pixels = bind("paper-tf")

    found = plain(pixels, torch.arange(COUNT)).permute(0, 2, 3, 1)

    image = array[7].astype(np.float64)
    np.testing.assert_allclose(found[7], (image - image.mean()) / image.std(), rtol=1e-4, atol=1e-5)


def test_every_crop_is_as_likely_and_half_of_the_images_are_flipped():
    _, pixels = bind("paper-tf")
    count = 20_000
    draws = drawn(pixels, count=count)

    corners = torch.bincount(draws.down * 5 + draws.right, minlength=25)

    # Standard deviation of a bin is 28, of the flips 71: five of them.
    assert (corners - count / 25).abs().max() < 140
    assert abs(int(draws.flip.sum()) - count / 2) < 355


def test_images_of_one_batch_are_cropped_and_flipped_independently():
    _, pixels = bind("paper-tf")
    draws = drawn(pixels, count=20_000)
    columns = torch.stack([draws.down, draws.right, draws.flip.long(), draws.order]).double()

    correlation = torch.corrcoef(columns) - torch.eye(4)

    # Five deviations of a correlation of 20,000 pairs.
    assert correlation.abs().max() < 5 / 20_000**0.5


def test_an_epoch_shows_every_image_once_in_an_order_of_its_own():
    _, pixels = bind("paper-tf")
    orders = [drawn(pixels, epoch=epoch).order for epoch in range(3)]

    assert all(sorted(order.tolist()) == list(range(COUNT)) for order in orders)
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[1], orders[2])


def test_an_epoch_can_be_drawn_again():
    _, pixels = bind("paper-tf")

    once, again = (drawn(pixels, seed=4, epoch=9) for _ in range(2))

    for name in ("order", "down", "right", "flip"):
        assert torch.equal(getattr(once, name), getattr(again, name))


def test_neighbouring_seeds_and_epochs_do_not_share_draws():
    _, pixels = bind("paper-tf")
    places = [(seed, epoch) for seed in range(6) for epoch in range(6)]

    orders = {tuple(drawn(pixels, seed=s, epoch=e).order.tolist()) for s, e in places}

    assert len(orders) == len(places)


def test_flips_can_be_turned_off():
    _, pixels = bind("paper-tf")

    assert not drawn(pixels, flip=False, count=1000).flip.any()


@pytest.mark.parametrize("fill", ["zero", "edge"])
def test_the_padding_holds_what_crop_fill_says(fill):
    array, pixels = bind("paper-tf", crop_fill=fill)
    draws = drawn(pixels, flip=False)

    found = crop(pixels, draws).numpy()

    top_left = next(i for i in range(COUNT) if draws.down[i] == 0 and draws.right[i] == 0)
    source = array[draws.order[top_left]]
    expected = source[0, 0] if fill == "edge" else np.zeros(3)
    np.testing.assert_array_equal(found[top_left, 0, 0], expected)
    np.testing.assert_array_equal(found[top_left, 2, 2], source[0, 0])

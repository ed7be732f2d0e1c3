"""numpy inference: equal to torch, equivariant, blind to masked candidates."""

import numpy as np
import pytest
import torch

from shared.policy.networks import deep_sets, deep_sets_shapes, layer_count, mlp, mlp_fault, mlp_shapes

SIZES = [7, 32, 16, 2]


def arrays(shapes, seed=1):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def inputs(*shape, seed=2):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def test_an_mlp_equals_torch_within_1e_5():
    params, x = arrays(mlp_shapes(SIZES)), inputs(100, 7)
    layers = []
    for index in range(3):
        linear = torch.nn.Linear(SIZES[index], SIZES[index + 1])
        linear.weight.data = torch.from_numpy(params[f"l{index}.w"].T.copy())
        linear.bias.data = torch.from_numpy(params[f"l{index}.b"])
        layers += [linear, torch.nn.ReLU()]
    with torch.no_grad():
        expected = torch.nn.Sequential(*layers[:-1])(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(mlp(params, x, 3), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_deep_sets_equals_torch_within_1e_5(pool):
    params, x = arrays(deep_sets_shapes(SIZES)), inputs(100, 7)
    y = torch.from_numpy(x)
    for index in range(3):
        w, g, b = (torch.from_numpy(params[f"l{index}.{part}"]) for part in "wgb")
        pooled = y.mean(0, keepdim=True) if pool == "mean" else y.amax(0, keepdim=True)
        y = y @ w + pooled @ g + b
        y = torch.relu(y) if index < 2 else y
    np.testing.assert_allclose(deep_sets(params, x, 3, pool=pool), y.numpy(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("candidates", [1, 3, 100])
def test_reordering_the_candidates_reorders_the_answers(pool, candidates):
    params, x = arrays(deep_sets_shapes(SIZES)), inputs(candidates, 7)
    order = np.random.default_rng(3).permutation(candidates)
    answers = deep_sets(params, x, 3, pool=pool)
    np.testing.assert_allclose(deep_sets(params, x[order], 3, pool=pool), answers[order], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_masked_candidates_change_nothing(pool):
    params, x = arrays(deep_sets_shapes(SIZES)), inputs(5, 7)
    padded = np.concatenate([x, np.full((4, 7), 1e6, np.float32)])
    mask = np.arange(9) < 5
    masked = deep_sets(params, padded, 3, mask=mask, pool=pool)
    np.testing.assert_allclose(masked[:5], deep_sets(params, x, 3, pool=pool), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_a_batch_of_sets_equals_the_sets_one_by_one(pool):
    params, x = arrays(deep_sets_shapes(SIZES)), inputs(6, 5, 7)
    mask = np.random.default_rng(4).random((6, 5)) < 0.5
    mask[0] = False
    batch = deep_sets(params, x, 3, mask=mask, pool=pool)
    assert np.isfinite(batch).all()
    for index in range(1, 6):
        alone = deep_sets(params, x[index][mask[index]], 3, pool=pool)
        np.testing.assert_allclose(batch[index][mask[index]], alone, atol=1e-5, rtol=1e-5)


def test_no_candidates_give_no_answers():
    assert deep_sets(arrays(deep_sets_shapes(SIZES)), inputs(0, 7), 3).shape == (0, 2)
    assert mlp(arrays(mlp_shapes(SIZES)), inputs(0, 7), 3).shape == (0, 2)


def test_a_prefix_tells_two_networks_in_one_file_apart():
    params = arrays(mlp_shapes(SIZES, "value.") | mlp_shapes([7, 2], "reject."))
    assert (layer_count(params, "value."), layer_count(params, "reject."), layer_count(params)) == (3, 1, 0)
    assert mlp(params, inputs(4, 7), 1, "reject.").shape == (4, 2)


def test_an_array_that_fits_no_layer_is_named():
    params = arrays(mlp_shapes(SIZES))
    assert mlp_fault(params) == ""
    assert mlp_fault({}) == "there is no array 'l0.w'"
    assert mlp_fault(params | {"l1.g": params["l1.w"]}) == "array 'l1.g' is (32, 16), the layers need none"
    assert mlp_fault(params | {"l1.w": params["l1.w"].ravel()}).startswith("array 'l1.b' is (16,), the layers need")

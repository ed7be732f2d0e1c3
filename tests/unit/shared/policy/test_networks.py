"""numpy inference of an MLP: equal to torch; arrays that are none are named."""

import numpy as np
import torch

from shared.policy.networks import layer_count, mlp, mlp_fault, mlp_shapes

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


def test_no_candidates_give_no_answers():
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

"""Packages that people use with recurrent layers take ours in place of those of torch.

docs/how-to/clients.md names the packages, their versions and the code to write. `make test-all` runs these tests for
the packages that are installed; `pip install -c constraints.txt 'gyral[clients]'` installs them all.
"""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, TensorDataset

import gyral
from gyral.core.errors import UserError
from tests.helpers.running import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of the packages

B, T, X, N, CLASSES = 4, 5, 3, 8, 2
LAYERS: dict[str, dict[str, Any]] = {
    "GRU": {},
    "LSTM": {"num_layers": 2, "bidirectional": True},
    "RUM": {"lambd": 1.0},
    "NTM": {"slots": 3, "width": 2},
    "FSRNN": {"fast": gyral.LSTMCell, "slow": gyral.LSTMCell},
}
each_layer = pytest.mark.parametrize("name", LAYERS)


class Classifier(nn.Module):
    """A layer and a linear head that reads the mean of its outputs."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.layer = getattr(gyral, name)(X, N, batch_first=True, **options)
        self.head = nn.Linear(self.layer.output_size, CLASSES)

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.head(self.layer(inputs)[0].mean(dim=1))
        return logits if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


def classifier(name: str) -> Classifier:
    torch.manual_seed(0)
    return Classifier(name, **LAYERS[name])


def examples(count: int = B) -> tuple[Tensor, Tensor]:
    return torch.randn(count, T, X), torch.arange(count) % CLASSES


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(*examples(8)), batch_size=B)


def assert_same_outputs(one: nn.Module, other: nn.Module) -> None:
    inputs, _ = examples()
    with torch.no_grad():
        torch.testing.assert_close(one(inputs), other(inputs))


# ---------------------------------------------------------------- training


@each_layer
def test_skorch(name: str, tmp_path: Path) -> None:
    skorch = pytest.importorskip("skorch")
    from sklearn.model_selection import GridSearchCV

    options = {f"module__{key}": value for key, value in LAYERS[name].items()}
    net = skorch.NeuralNetClassifier(
        Classifier, module__name=name, **options, max_epochs=2, verbose=0, train_split=None
    )
    inputs, labels = (tensor.numpy() for tensor in examples(20))
    search = GridSearchCV(net, {"lr": [0.1, 0.01]}, cv=2, error_score="raise").fit(inputs, labels)
    best = search.best_estimator_
    best.save_params(f_params=tmp_path / "parameters.safetensors", use_safetensors=True)
    other = skorch.NeuralNetClassifier(Classifier, module__name=name, **options, train_split=None).initialize()
    other.load_params(f_params=tmp_path / "parameters.safetensors", use_safetensors=True)
    assert np.array_equal(best.predict_proba(inputs), other.predict_proba(inputs))


@each_layer
def test_accelerate(name: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator, model = accelerate.Accelerator(cpu=True), classifier(name)
    model, optimizer, batches = accelerator.prepare(model, torch.optim.Adam(model.parameters()), loader())
    for inputs, labels in batches:
        accelerator.backward(F.cross_entropy(model(inputs), labels))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_model(model, str(tmp_path))
    with accelerate.init_empty_weights():
        empty = Classifier(name, **LAYERS[name])
    loaded = accelerate.load_checkpoint_and_dispatch(empty, str(tmp_path / "model.safetensors"), device_map={"": "cpu"})
    assert_same_outputs(loaded, accelerator.unwrap_model(model))
    # the weights are on the meta device between calls: those of cells are needed when their layer is called
    assert_same_outputs(accelerate.cpu_offload(copy.deepcopy(loaded), "cpu", preload_module_classes=[name]), loaded)


@each_layer
def test_safetensors(name: str, tmp_path: Path) -> None:
    files = pytest.importorskip("safetensors.torch")
    model, other = classifier(name), Classifier(name, **LAYERS[name])
    files.save_model(model, str(tmp_path / "model.safetensors"))
    files.load_model(other, str(tmp_path / "model.safetensors"))
    assert_same_outputs(model, other)


@each_layer
def test_trainer_of_transformers(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    data = [{"inputs": inputs, "labels": label} for inputs, label in zip(*examples(8), strict=True)]

    def trainer(steps: int) -> Any:
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=steps, save_steps=1, use_cpu=True, report_to=[], disable_tqdm=True
        )
        return transformers.Trainer(classifier(name), arguments, train_dataset=data, eval_dataset=data)

    trainer(1).train()
    resumed = trainer(2)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 2
    assert resumed.predict(data).predictions.shape == (8, CLASSES)


@each_layer
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_fabric(name: str, precision: str, tmp_path: Path) -> None:
    fabric_module = pytest.importorskip("lightning_fabric")
    fabric = fabric_module.Fabric(accelerator="cpu", devices=1, precision=precision)
    fabric.launch()
    model = classifier(name)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
    inputs, labels = examples()
    fabric.backward(F.cross_entropy(model(inputs), labels))
    fabric.clip_gradients(model, optimizer, max_norm=1.0)
    optimizer.step()
    fabric.save(tmp_path / "fabric.ckpt", {"model": model})
    other = fabric.setup_module(Classifier(name, **LAYERS[name]))
    fabric.load(tmp_path / "fabric.ckpt", {"model": other})
    assert_same_outputs(model, other)


@each_layer
def test_ignite(name: str) -> None:
    engines = pytest.importorskip("ignite.engine")
    from ignite.metrics import Accuracy

    model = classifier(name)
    engines.create_supervised_trainer(model, torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()).run(loader())
    evaluator = engines.create_supervised_evaluator(model, {"accuracy": Accuracy()})
    assert 0 <= evaluator.run(loader()).metrics["accuracy"] <= 1


@each_layer
def test_schedule_free_and_other_optimizers(name: str) -> None:
    schedulefree, optimizers = pytest.importorskip("schedulefree"), pytest.importorskip("pytorch_optimizer")
    inputs, labels = examples()
    for make in (schedulefree.AdamWScheduleFree, optimizers.Lion, optimizers.SOAP):
        model = classifier(name)
        before, optimizer = copy.deepcopy(model), make(model.parameters(), lr=0.1)
        if hasattr(optimizer, "train"):
            optimizer.train()
        for _ in range(2):  # SOAP's first step only measures
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        with pytest.raises(AssertionError):
            assert_same_outputs(model, before)


def test_recurrent_ppo_of_stable_baselines(tmp_path: Path) -> None:
    ppo = pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy

    class Policy(RecurrentActorCriticPolicy):
        def __init__(self, observations: Any, actions: Any, schedule: Callable[[float], float], **options: Any) -> None:
            super().__init__(observations, actions, schedule, **options)
            self.lstm_actor = gyral.LSTM(self.features_dim, self.lstm_output_dim)
            self.lstm_critic = gyral.LSTM(self.features_dim, self.lstm_output_dim)
            self.optimizer = self.optimizer_class(self.parameters(), lr=schedule(1), **self.optimizer_kwargs)

    options = {"lstm_hidden_size": N}
    agent = ppo.RecurrentPPO(
        Policy, "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, policy_kwargs=options, device="cpu", seed=0
    )
    before = agent.policy.lstm_actor.weight_hh_l0.clone()
    agent.learn(32)
    assert not torch.equal(agent.policy.lstm_actor.weight_hh_l0, before)
    agent.save(tmp_path / "agent")
    loaded = ppo.RecurrentPPO.load(tmp_path / "agent", device="cpu")
    observation = agent.env.reset()
    action, state = agent.predict(observation, deterministic=True)
    same, _ = loaded.predict(observation, deterministic=True)
    assert np.array_equal(action, same)
    agent.predict(observation, state, episode_start=np.array([False]))


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_recurrent_mode_of_torchrl(name: str) -> None:
    modules = pytest.importorskip("torchrl.modules")
    from tensordict import TensorDict

    class Masked(getattr(gyral, name)):  # type: ignore[misc]
        def forward(self, inputs: Any, state: Any = None, mask: Tensor | None = None) -> Any:
            return super().forward(inputs, state, None if mask is None else mask.sum(1))

    theirs, ours = getattr(nn, name)(X, N, 2, batch_first=True), Masked(X, N, 2, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    states = ["hidden"] if name == "GRU" else ["hidden", "cell"]
    batch = TensorDict({"is_init": torch.zeros(B, T, 1, dtype=torch.bool), "inputs": torch.randn(B, T, X)}, [B, T])
    batch["is_init"][:, 0] = batch["is_init"][0, 2] = batch["is_init"][1, 3] = True
    for state in states:
        batch[state] = torch.randn(B, T, 2, N)
    keys = {"in_keys": ["inputs", *states, "is_init"], "out_keys": ["outputs", *(("next", state) for state in states)]}
    for backend in ("pad", "scan"):
        found = []
        for layer in (theirs, ours):
            module = getattr(modules, f"{name}Module")(**{name.lower(): layer}, **keys, recurrent_backend=backend)
            with modules.set_recurrent_mode(True):
                whole = module(batch.clone())
            step = module(batch[:, 0].clone())
            found.append([whole["outputs"], step["outputs"], *(whole["next", state] for state in states)])
        torch.testing.assert_close(found[1], found[0])


# ---------------------------------------------------------------- summaries, explanations, export


@each_layer
def test_torchinfo(name: str) -> None:
    torchinfo = pytest.importorskip("torchinfo")
    model = classifier(name)
    found = torchinfo.summary(model, input_data=examples()[0], verbose=0)
    assert found.total_params == sum(parameter.numel() for parameter in model.parameters())
    assert name in str(found)


@each_layer
def test_model_summary_of_lightning(name: str) -> None:
    lightning = pytest.importorskip("pytorch_lightning")
    from pytorch_lightning.utilities.model_summary import ModelSummary

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.example_input_array = classifier(name), examples()[0]

        def forward(self, inputs: Tensor) -> Tensor:
            return self.model(inputs)

    found = ModelSummary(Module(), max_depth=-1)
    assert found.total_parameters == sum(parameter.numel() for parameter in classifier(name).parameters())


@each_layer
def test_captum(name: str) -> None:
    attributions = pytest.importorskip("captum.attr")
    model, (inputs, _) = classifier(name).eval(), examples()
    gradients = attributions.IntegratedGradients(model)
    _, error = gradients.attribute(inputs, target=1, n_steps=200, return_convergence_delta=True)
    assert error.abs().max() < 1e-3
    for method in (attributions.Saliency, attributions.FeatureAblation, attributions.DeepLift):
        found = method(model).attribute(inputs.clone().requires_grad_(), target=0)
        assert found.shape == inputs.shape
        assert found.any()


@each_layer
def test_shap(name: str) -> None:
    shap = pytest.importorskip("shap")
    inputs, _ = examples()
    values = shap.GradientExplainer(classifier(name).eval(), inputs).shap_values(inputs, nsamples=4)
    assert values.shape == (B, T, X, CLASSES)
    assert values.any()


@pytest.mark.parametrize("name", ["GRU"])  # tests/nn/test_uses.py has all layers
def test_onnxruntime(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, (inputs, _) = classifier(name).eval(), examples()
    torch.onnx.export(model, (inputs,), dynamo=True, verbose=False).save(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (found,) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model(inputs).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["GRU", "RUM"])
def test_openvino(name: str) -> None:
    openvino = pytest.importorskip("openvino")
    model, (inputs, _) = classifier(name).eval(), examples()
    compiled = openvino.compile_model(openvino.convert_model(model, example_input=inputs), "CPU")
    found = torch.from_numpy(compiled(inputs.numpy())[0])
    torch.testing.assert_close(found, model(inputs).detach(), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- adapters, quantization, privacy


class LowRank(nn.Module):
    """Adds a product of two small matrices to a weight that is not trained (Hu et al. 2021)."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, weight.shape[1]) / rank)
        self.up = nn.Parameter(torch.zeros(weight.shape[0], rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


@each_layer
def test_low_rank_adapters_by_parametrization(name: str) -> None:
    model = classifier(name)
    before, (inputs, labels) = copy.deepcopy(model), examples()
    model.requires_grad_(False)
    for module in list(model.layer.modules()):
        for own, weight in list(module.named_parameters(recurse=False)):
            if weight.dim() == 2 and "weight" in own:
                parametrize.register_parametrization(module, own, LowRank(weight, 2))
    assert_same_outputs(model, before)
    adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(adapters, lr=0.1)
    for _ in range(2):
        F.cross_entropy(model(inputs), labels).backward()
        assert all(parameter.grad is not None for parameter in adapters)
        optimizer.step()
    assert all(parameter.grad.any() for parameter in adapters)
    with pytest.raises(AssertionError):
        assert_same_outputs(model, before)
    assert torch.equal(model.head.weight, before.head.weight)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_adapters_of_peft_by_the_names_of_weights(name: str) -> None:
    peft = pytest.importorskip("peft")
    model, (inputs, labels) = classifier(name), examples()
    weights = [key for key, weight in model.named_parameters() if weight.dim() == 2 and key.startswith("layer.")]
    assert len(weights) == 2 * len(model.layer.cells)
    expected = model(inputs).detach()
    found = peft.get_peft_model(model, peft.LoraConfig(target_modules=[], target_parameters=weights, r=2))
    torch.testing.assert_close(found(inputs), expected)
    adapters = [parameter for parameter in found.parameters() if parameter.requires_grad]
    assert len(adapters) == 2 * len(weights)
    optimizer = torch.optim.Adam(adapters, lr=0.1)
    for _ in range(2):
        F.cross_entropy(found(inputs), labels).backward()
        optimizer.step()
    adapted = found(inputs).detach()
    assert (adapted - expected).abs().max() > 1e-3
    torch.testing.assert_close(found.merge_and_unload()(inputs), adapted)


@each_layer
def test_linear_modules_of_peft_are_those_that_are_called(name: str) -> None:
    peft = pytest.importorskip("peft")
    model, (inputs, _) = classifier(name), examples()
    found = peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear", init_lora_weights=False))
    found(inputs).sum().backward()
    adapters = {key: value for key, value in found.named_parameters() if value.requires_grad}
    assert all(value.grad is not None and value.grad.any() for value in adapters.values())
    assert {key.split(".lora_")[0] for key in adapters} == {"base_model.model.head"}  # none in the layer


@pytest.mark.parametrize("name", ["GRU", "LSTM", "RUM"])
def test_torchao(name: str) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model, (inputs, _) = Classifier(name, backend="reference").eval(), examples()
    expected, config = model(inputs).detach(), quantization.Int8WeightOnlyConfig()
    weights = [key for key, weight in model.layer.named_parameters() if re.search(r"weight_[ih]h", key)]
    quantization.quantize_(model.layer, quantization.FqnToConfig(dict.fromkeys(weights, config)), filter_fn=None)
    quantized = dict(model.layer.named_parameters())
    assert all(type(quantized[key]).__name__ == "Int8Tensor" for key in weights)
    with torch.no_grad():
        found = model(inputs)
    assert 0 < (found - expected).abs().max() < 0.05


@each_layer
def test_tools_that_replace_linear_modules_find_those_that_are_called(name: str) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = classifier(name).eval()
    before = copy.deepcopy(model)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    found = [key for key, weight in model.named_parameters() if type(weight).__name__ == "Int8Tensor"]
    assert found == ["head.weight"]
    with torch.no_grad():
        assert (model(examples()[0]) - before(examples()[0])).isfinite().all()


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_dynamic_quantization_of_torch(name: str) -> None:
    ours = getattr(gyral, name)(X, N, num_layers=2, batch_first=True)
    theirs = getattr(nn, name)(X, N, num_layers=2, batch_first=True)
    theirs.load_state_dict(ours.torch_state_dict())
    model = nn.ModuleList([theirs]).eval()
    quantized = torch.ao.quantization.quantize_dynamic(model, {type(theirs)}, dtype=torch.qint8)[0]
    inputs, _ = examples()
    assert type(quantized) is not type(theirs)
    torch.testing.assert_close(quantized(inputs)[0], ours(inputs)[0], rtol=0, atol=0.05)


@each_layer
@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_opacus_is_refused(name: str, mode: str) -> None:
    opacus = pytest.importorskip("opacus")
    model, (inputs, _) = classifier(name), examples()
    optimizer, options = torch.optim.SGD(model.parameters(), 0.1), {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    engine = opacus.PrivacyEngine()
    private, _, _ = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader(), grad_sample_mode=mode, **options
    )
    with pytest.raises(UserError, match=r"^[^\n]+$"):
        private(inputs)


# ---------------------------------------------------------------- configuration


@each_layer
def test_hydra_zen(name: str) -> None:
    hydra_zen = pytest.importorskip("hydra_zen")
    options = {key: hydra_zen.just(value) if isinstance(value, type) else value for key, value in LAYERS[name].items()}
    config = hydra_zen.builds(getattr(gyral, name), X, N, **options, populate_full_signature=True)
    assert name in hydra_zen.to_yaml(config)
    layer = hydra_zen.instantiate(config)
    assert repr(layer) == repr(getattr(gyral, name)(X, N, **LAYERS[name]))


# ---------------------------------------------------------------- the page


def test_the_page_has_the_versions_of_the_constraints() -> None:
    page = (ROOT / "docs" / "how-to" / "clients.md").read_text(encoding="utf-8")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {
        name.lower().replace("_", "-"): version for name, version in re.findall(r"^(\S+)==(\S+)$", constraints, re.M)
    }
    rows = re.findall(r"^\| ([\w-]+) \| (\d[\w.]*) \| tested", page, re.MULTILINE)
    assert len(rows) >= 18
    assert dict(rows) == {name: pinned[name] for name, _ in rows}

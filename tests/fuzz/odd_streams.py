"""Cases of streams: valid commands whose streams are full, closed, folders, terminals or broken pipes; and kills."""

import shutil
from random import Random

from fuzz.case import Case
from fuzz.material import CLASSIFIERS, LANGUAGE_MODELS, SEQUENCES, TAGGERS, TINY, Material
from fuzz.streams import OPENERS

KILLED = 0.1
BY_ITSELF = 0.02
STDIN = b"Anna sees Lima\nthe cat sat on a mat\n"


def arrange(choose: Random, case: Case, material: Material) -> None:
    case.stdin = STDIN * choose.choice([1, 1, 5, 2000])
    if choose.random() < KILLED:
        _killed(choose, case, material)
        return
    case.arguments = choose.choice([_labels, _text, _outputs, _other])(choose, case, material)
    odd_one = choose.choice([1, 1, 1, 0, 0, 2])
    names = [name for name in OPENERS if name != "file"]
    case.streams = tuple(  # type: ignore[assignment]
        choose.choice(names) if descriptor == odd_one or choose.random() < 0.1 else "file" for descriptor in range(3)
    )
    case.writes_progress = case.arguments[:1] in (["train"], ["evaluate"], ["inspect"], ["gradients"])
    case.in_new_interpreter = choose.random() < BY_ITSELF


def _labels(choose: Random, case: Case, material: Material) -> list[str]:
    run = material.run(choose, TAGGERS, CLASSIFIERS)
    command = choose.choice(["predict", "predict", "predict", "evaluate", "inspect"])
    path = [str(run.data)] if command == "evaluate" or (command == "predict" and choose.random() < 0.5) else []
    path = path or ([choose.choice(["-", "the cat"])] if command == "inspect" else [])
    return [command, str(run.path), *path, *(["--json"] if choose.random() < 0.3 and command != "inspect" else [])]


def _text(choose: Random, case: Case, material: Material) -> list[str]:
    run = material.run(choose, LANGUAGE_MODELS)
    command = choose.choice(["generate", "score", "evaluate", "inspect"])
    if command == "generate":
        prompt = choose.choice([[], ["--prompt", "-"], ["--prompt", "the"], ["--samples", "2"]])
        return [command, str(run.path), "--max-tokens", choose.choice(["5", "300"]), *prompt]
    texts = ["the cat", "-"] if command == "inspect" else [str(run.data), "-"]
    return [command, str(run.path), choose.choice(texts)]


def _outputs(choose: Random, case: Case, material: Material) -> list[str]:
    run = material.run(choose, SEQUENCES)
    command = choose.choice(["predict", "predict", "score", "evaluate"])
    search = choose.choice([[], ["--beams", "1"], ["--n-best", "3"]]) if command == "predict" else []
    is_json = ["--json"] if choose.random() < 0.3 else []
    return [command, str(run.path), choose.choice([str(run.data), "-"]), *search, *is_json]


def _other(choose: Random, case: Case, material: Material) -> list[str]:
    run = material.run(choose)
    return choose.choice(
        [
            ["data", str(run.data)], ["recipes"], ["recipes", "char-lstm"], ["--help"], ["predict", "--help"],
            ["--version"], [], ["nothing"], ["train", "--resume", "--out", "nowhere"], ["predict", "nowhere"],
            ["gradients", "lstm", "--steps", "1", "--positions", "8", "--json", "--d-model", "4"],
            ["train", "char-lstm", "--train", str(material.folder / "text.txt"), "--out", "out", *TINY, "--set",
             "encoder.d_model=4"],
        ]
    )  # fmt: skip


def _killed(choose: Random, case: Case, material: Material) -> None:
    """Arrange a training that is killed and resumed."""
    run = material.run(choose)
    shutil.copy(run.path / "recipe.toml", case.folder / "recipe.toml")
    settings = ["train.steps=30", "train.checkpoint_every=2", "train.validations=5"]
    case.arguments = ["train", "recipe.toml", "--out", "out", "--threads", "1", "--device", "cpu"]
    for setting in settings:
        case.arguments += ["--set", setting]
    case.killed_after_seconds = choose.choice([0.02, 0.1, 0.3, 0.6, 1.0])
    case.writes_progress = True

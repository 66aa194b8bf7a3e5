"""One of the processes of ``test_distributed.py``: ``rank_script.py FOLDER``, under a launcher."""

import faulthandler
import hashlib
import sys
from pathlib import Path

from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.learning import BatchSpec
from robolearn.training.distributed import Ranks, joined
from robolearn.training.loop import FitConfig, fit
from tests.learning_mocks import random_flat
from tests.policies.every import TRAINED, Family, batches_of, untrained
from tests.robolearn.training.test_training import TwoHeads

CONFIG = FitConfig(steps=12, warmup=2, log_every=1, checkpoint_every=12)


def train(out: Path, ranks, noise: float) -> None:
    out.mkdir(exist_ok=True)
    dataset = EpisodeDataset(random_flat(), BatchSpec(1, 2, 4), seed=0)
    fit(TwoHeads(noise=noise), dataset, CONFIG, out, seed=3, ranks=ranks)


SHORT = FitConfig(steps=3, warmup=1, log_every=1, checkpoint_every=3)


def train_policy(name: str, folder: Path, config: FitConfig, ranks: Ranks) -> Path:
    """The policy ``name`` at toy size, over the parent in ``folder/family``."""
    family, out = Family(folder / "family"), folder / f"{name}-{config.accumulate}"
    algorithm = untrained(name, family)
    out.mkdir(exist_ok=True)
    fit(algorithm, batches_of(family, name, 4), config, out, seed=3, ranks=ranks)
    # Everything that learning goes on from: networks, targets, averages.
    digest = hashlib.sha256()
    for key, value in sorted(algorithm.state_dict().items()):
        digest.update(key.encode() + value.detach().contiguous().numpy().tobytes())
    (out / f"rank_{ranks.rank}.txt").write_text(digest.hexdigest())
    return out


if __name__ == "__main__":
    faulthandler.enable()  # What ends a process without an exception says where.
    folder = Path(sys.argv[1])
    with joined() as found:
        train(folder / "quiet", found, 0.0)
        found.wait()
        train(folder / "noisy", found, 0.01)
        for policy in TRAINED:
            found.wait()
            train_policy(policy, folder, SHORT, found)

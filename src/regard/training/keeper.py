"""Checkpoints and the model file: what a training leaves in its run folder and finds there."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from regard.counts import counted
from regard.errors import DataError, RegardError, RunFolderError
from regard.shapes import Tensor
from regard.training.arithmetic import arithmetic, changes
from regard.training.config import TrainingConfig
from regard.training.metrics import MetricsLog
from regard.training.processes import ALONE, Processes
from regard.training.sharding import is_cut
from regard.training.state import (
    Best,
    Position,
    TensorGroups,
    copied,
    file_tensors,
    gathered_groups,
    give_random,
    give_tensors,
    model_tensors,
    take_random,
    take_tensors,
)
from regard.training.step import Stepper
from regard.training.writer import Writer
from regard.weights.adapted import base_sum
from regard.weights.checkpoints import (
    Checkpoint,
    checkpoint_steps,
    find_checkpoint,
    keep_checkpoints,
    latest_checkpoint,
    save_checkpoint,
)
from regard.weights.run_folder import MODEL, RunFolder

State = dict[str, Any]


class Keeper:
    """Writes a training's checkpoints and its model, and takes up an earlier start's.

    `fingerprint` names the training data, and `measure` what validations measure; `say` takes
    words for the user, and `notes` are kept with the model beside those of how it was made.

    Of several processes only the main one writes; the others know what it has written. All must
    call its methods alike, since weights that are cut over them are put together by all.

    What is saved is copied at once and written in a thread, one thing at a time and in order;
    `close` must be called at the end.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: TrainingConfig,
        fingerprint: str,
        measure: str,
        say: Callable[[str], None],
        notes: Mapping[str, str],
        processes: Processes = ALONE,
    ) -> None:
        self._processes = processes
        self.saved_step = -1
        self.saved_validated = -1
        self._folder = folder
        self._config = config
        self._fingerprint = fingerprint
        self._measure = f"{config.best_metric} {measure}"
        self._say = say
        self._notes = dict(notes)
        self._writer = Writer()

    def newest(self) -> tuple[Checkpoint, State] | None:
        """The newest whole checkpoint and its state, after a check that it can be gone on with.

        Raises:
            RegardError: it has done more steps than the recipe asks for.
            DataError: the training data is not what it was.
            RunFolderError: the model that is adapted is not what it was, or every checkpoint is
                damaged.
        """
        chosen: list[tuple[Checkpoint, State]] = []

        def choose() -> int | None:
            found = self._newest()
            if found is not None:
                chosen.append(found)
            return found and found[0].step

        step = self._processes.from_main(choose)
        if step is None:
            return None
        if chosen:
            return chosen[0]
        found = find_checkpoint(self._folder.path, step)
        return found, found.state()

    def _newest(self) -> tuple[Checkpoint, State] | None:
        found = latest_checkpoint(self._folder.path, self._say)
        if found is None:
            self._say("there is no checkpoint yet: starting from the beginning")
            return None
        if found.step > self._config.max_steps:
            raise RegardError(
                f"the run has done {counted(found.step, 'step')} and max_steps = "
                f"{self._config.max_steps}",
                where="training.max_steps",
                hint=f"Ask for more than {counted(found.step, 'step')} to go on.",
            )
        state = found.state()
        if state["data"] != self._fingerprint:
            raise DataError(
                f"the training data has changed since the checkpoint of step {found.step}",
                where=str(self._folder.path),
                hint="Bring the former files and data.weights back, or start anew with --init.",
            )
        if state.get("base", base_sum(self._notes)) != base_sum(self._notes):
            raise RunFolderError(
                "the run that is adapted has another model than at the checkpoint of step "
                f"{found.step}",
                where=str(self._folder.path),
                hint="Bring its former model back, or start anew.",
            )
        return found, state

    def restore(
        self, found: Checkpoint, state: State, model: nn.Module, stepper: Stepper
    ) -> Position:
        """Put a checkpoint's state in place; return where training stands."""
        groups = {name: found.tensors(name) for name in found.names}
        give_tensors(groups, model, stepper.optimizer, stepper.average)
        give_random(state["random"])
        position = Position.from_json(state["position"])
        self.saved_step, self.saved_validated = position.step, position.validated
        order = {"seed": self._config.seed, "batch_tokens": self._config.batch_tokens}
        if position.batch and order != state["order"]:
            self._say("seed or batch_tokens has changed, so the rest of this epoch is left out")
            position.epoch, position.batch = position.epoch + 1, 0
        here = self._arithmetic(model)
        if otherwise := changes(state.get("arithmetic", here), here):
            self._say(
                f"this start computes otherwise than the one before it ({otherwise}): the training "
                "goes on, and may end with other bits than one that was never stopped"
            )
        if position.best and state["measure"] != self._measure:
            self._say("best_metric or what is measured has changed: the best so far is forgotten")
            position.best, position.stale = None, 0

        def recall() -> bool:
            self._recall_best(position)
            return position.best is not None

        if not self._processes.from_main(recall):
            position.best = None
        return position

    def save(
        self,
        position: Position,
        model: nn.Module,
        stepper: Stepper,
        *,
        metrics: MetricsLog | None,
        precision: str,
    ) -> None:
        """Save all that a resume needs, and drop the checkpoints that are too old.

        Without `metrics`, in all processes but the main one, only the step is noted.

        Raises:
            RunFolderError: what was to be written before this could not be.
        """
        self.saved_step, self.saved_validated = position.step, position.validated
        self._writer.wait()
        tensors = self._taken(take_tensors(model, stepper.optimizer, stepper.average), model)
        if metrics is None:
            return
        state = {
            "position": position.to_json(),
            "random": take_random(),
            "metrics_length": metrics.length,
            "data": self._fingerprint,
            "measure": self._measure,
            "order": {"seed": self._config.seed, "batch_tokens": self._config.batch_tokens},
            "precision": precision,
            "arithmetic": self._arithmetic(model),
            "base": base_sum(self._notes),
        }
        folder, step = self._folder.path, position.step
        best = [position.best.step] if position.best else []

        def write() -> None:
            metrics.sync()
            save_checkpoint(folder, step, tensors, state)
            keep_checkpoints(folder, self._config.keep_last, also=best)

        self._writer.start(write)

    def write_model(
        self, made: str, position: Position, model: nn.Module, stepper: Stepper
    ) -> None:
        """Write the weights as they are now (their averages where there are any) as the model.

        `made` is "best" or "last" and is kept with the file, beside the step.

        Raises:
            RunFolderError: what was to be written before this could not be.
        """
        self._writer.wait()
        tensors = {"model": file_tensors(model_tensors(model, stepper.average))}
        weights = self._taken(tensors, model).get("model", {})
        if not self._processes.main:
            return
        best = position.best if made == "best" else None
        notes = self._notes_of(made, position.step, bool(stepper.average), best)
        self._writer.start(lambda: self._folder.write_model(weights, notes))

    def _notes_of(self, made: str, step: int, averaged: bool, best: Best | None) -> dict[str, str]:
        """What is kept with the model file; a file made again has the same."""
        notes = {**self._notes, "made": made, "step": str(step)}
        if averaged:
            notes["ema_decay"] = str(self._config.ema_decay)
        if best is not None:
            notes[self._config.best_metric] = str(best.value)
        return notes

    def _arithmetic(self, model: nn.Module) -> dict[str, str]:
        return arithmetic(next(model.parameters()).device, self._processes.count)

    def _taken(self, tensors: Mapping[str, Mapping[str, Tensor]], model: nn.Module) -> TensorGroups:
        """A copy of whole tensors in the main process's memory; nothing in the others."""
        if is_cut(model):
            return gathered_groups(tensors, keep=self._processes.main)
        return copied(tensors) if self._processes.main else {}

    def check(self) -> None:
        """Raise what went wrong with the last write, if it has ended; wait for nothing."""
        self._writer.check()

    def wait(self) -> None:
        """Wait until all is written.

        Raises:
            RunFolderError: something could not be (which file).
        """
        self._writer.wait()

    def close(self) -> None:
        """Wait until nothing is being written any more, whatever came of it."""
        self._writer.close()

    def last_checkpoint(self) -> Path | None:
        """Where the newest checkpoint is, once all is written."""
        self.close()
        steps = checkpoint_steps(self._folder.path)
        return find_checkpoint(self._folder.path, steps[-1]).path if steps else None

    def _recall_best(self, position: Position) -> None:
        """Make the model file that of the best validation that the checkpoint knows of.

        It may be of a later one, since training went on after the checkpoint. Where the weights
        of the best are gone, the best is forgotten: what follows is measured again anyway.
        """
        best, folder = position.best, self._folder
        if best is None:
            return
        why = "is damaged" if (folder.path / MODEL).exists() else "is missing"
        if folder.is_whole(MODEL):
            notes = folder.model_notes()
            if notes.get("made") == "best" and notes.get("step") == str(best.step):
                return
            why = f"is that of step {notes.get('step')}"
        if best.step not in checkpoint_steps(folder.path):
            self._say(
                f"{folder.path / MODEL} {why}, and no checkpoint has the weights of step "
                f"{best.step}: the best so far is forgotten"
            )
            position.best = None
            return
        found = find_checkpoint(folder.path, best.step)
        averaged = "ema" in found.names
        weights = found.tensors("ema" if averaged else "model")
        notes = self._notes_of("best", best.step, averaged, best)
        self._say(
            f"{folder.path / MODEL} {why}: the model is made again from the best checkpoint, that "
            f"of step {best.step}"
        )
        folder.write_model(file_tensors(weights), notes)

"""From batches to a trained model: loop, losses, schedules, checkpoints."""

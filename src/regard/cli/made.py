"""What the commands that make something say of it at their end."""

from pathlib import Path


def tell(text: str, made: Path) -> None:
    """Print what was made; where standard output takes no more, it is there all the same.

    Raises:
        RegardError: standard output can't be written; says where it is.
    """
    from regard.errors import RegardError
    from regard.streams import Results

    try:
        print(text, file=Results.around_standard_output(), flush=True)
    except RegardError as error:
        hint = f"What was made is there: {made}"
        raise RegardError(error.problem, where=error.where, hint=hint) from None

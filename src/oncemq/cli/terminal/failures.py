"""What only commands raise, and damage named with the command that shows it."""

import shlex

from oncemq import errors


class NothingNew(errors.OnceMQError):
    """There was nothing to get."""

    code = "nothing_new"


class OutputFailed(errors.OnceMQError):
    """The answer could not be written to standard output."""

    code = "output_failed"


class NotStored(errors.Refused):
    """The put was answered, and not kept."""

    code = "not_stored"


def naming_repair(error: errors.Corrupt, data: str) -> errors.Corrupt:
    """Damage in a data directory, with the command that shows it, as it is to be typed."""
    command = f"`once repair --data {shlex.quote(data)}`"
    detail = error.detail.replace("`once repair`", command)
    if "`once " not in detail:
        detail += f"; {command} shows the damage and the choices"
    return errors.Corrupt(detail, code=error.code)

"""Errors of the DRA side; each text names the subject, the rule and what to do."""


class DraPluginError(Exception):
    """Root of this folder's errors."""


class NotAnsweredInTime(DraPluginError):
    """A call of the kubelet cannot be answered within its deadline, or before the plugin stops; it is repeated."""

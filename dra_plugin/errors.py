"""Errors of the DRA side; each text names the subject, the rule and what to do."""


class DraPluginError(Exception):
    """Root of this folder's errors."""


class NotAnsweredInTime(DraPluginError):
    """A kubelet call that cannot be answered before its deadline or before the plugin stops. The kubelet repeats it."""

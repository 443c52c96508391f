"""Examples of plug-ins. Empty on purpose: devices without torch import it, too."""

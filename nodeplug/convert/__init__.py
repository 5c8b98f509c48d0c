"""Other device plugins' configurations as ours: `nodeplug convert`.

What is offered afterwards is what was offered before, under the same names. Where that cannot be, the resource is left
out and the reason is said: nobody gets a device by a conversion that he did not have.
"""

from nodeplug.convert.conversion import Conversion
from nodeplug.convert.convert import FORMATS, convert, whose

__all__ = ["FORMATS", "Conversion", "convert", "whose"]

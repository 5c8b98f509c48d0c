"""Other device plugins' configurations as ones of nodeplug: `nodeplug convert`.

The result offers the same devices under the same names. Where that is impossible, the resource is left out, with the
reason: no pod gets a device by a conversion that it could not have before.
"""

from nodeplug.convert.conversion import Conversion
from nodeplug.convert.convert import FORMATS, convert, plugins_of

__all__ = ["FORMATS", "Conversion", "convert", "plugins_of"]

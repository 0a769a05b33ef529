"""UDSG and CDSG: old coordinates used again."""

TITLE = "UDSG and CDSG: old coordinates used again"
REFERENCE = (
    "C.-L. Li, B. Póczos, *Utilize Old Coordinates: Faster Doubly Stochastic Gradients "
    "for Kernel Methods*, UAI 2016."
)
WITHOUT_DATA: dict[str, str] = {}

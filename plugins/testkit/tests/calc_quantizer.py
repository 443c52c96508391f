"""calc has no quantizer worth the name."""


class CalcQuantizer:
    """Annotates nothing."""

    def annotate(self, model):
        return model

    def validate(self, model):
        pass


def calc_quantizer(*, recipe=None):
    """Makes it."""
    return CalcQuantizer()

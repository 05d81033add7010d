"""How figures are rounded on pages."""


def rate(value: float) -> str:
    """Round a rate to about two digits: 111,000 and 8,400."""
    digits = 3 if abs(value) >= 10_000 else 2 if abs(value) >= 1_000 else 1 if abs(value) >= 100 else 0
    return f"{round(value, -digits):,.0f}"


def short(value: float) -> str:
    """Write a figure of any size with about two digits after the first."""
    if abs(value) >= 1_000:
        return rate(value) if abs(value) >= 10_000 else f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 20 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def count(value: float) -> str:
    """Write a whole number."""
    return f"{value:,.0f}"

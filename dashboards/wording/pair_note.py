"""What intervals of differences and their p-values say, where there are several pairs."""


def pair_note(pairs: int) -> str:
    """Why an interval may exclude 0 beside "not shown"; "" for a single pair, where it cannot.

    Simultaneous intervals that always agree with Holm's test have an end at 0 for every difference
    that is shown (Strassburger and Bretz 2008, Guilbaud 2008), so they would not say how large it
    is; Bonferroni's do, but do not agree. So intervals stay those of each pair.
    """
    if pairs < 2:
        return ""
    return (
        f"Each interval holds for its pair alone; p is corrected for all {pairs} pairs together "
        "(Holm), and the verdict goes by p. So an interval may exclude 0 beside “not shown”."
    )

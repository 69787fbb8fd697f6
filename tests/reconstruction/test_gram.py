"""Sums of x x' that store one half of each matrix."""

import pytest
import torch

from catro_deploy.reconstruction.gram import GramSum


@pytest.mark.parametrize("block", [1, 3, 4, 9, 10])
@pytest.mark.parametrize("columns", [0, 1, 9])
def test_it_is_the_product_of_the_rows_with_themselves(columns, block):
    rows = torch.randn(2, 3, 5, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = GramSum(3, columns, block, rows.device)
    for part in rows:
        gram.add(part)
    both = rows.movedim(0, 1).flatten(1, 2)
    torch.testing.assert_close(gram.whole(), both.mT @ both)


def test_it_holds_little_more_than_half_of_a_matrix():
    gram = GramSum(1, 64, 4, torch.device("cpu"))
    gram.whole().fill_(1)  # a separate matrix
    assert not gram.whole().any()
    assert gram.nbytes == (64 * 64 + 64 * 4) // 2 * 8

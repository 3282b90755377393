"""The release of bAbI, which the reading tasks read too."""

from tests.data.babi.conftest import real as real

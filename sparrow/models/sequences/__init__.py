"""Encoders: one vector per example from a history in order.

======================  ====================================================================================
`PoolingEncoder`        sum or mean of the elements
`TargetAttention`       DIN: how much an element counts depends on the candidate, through a network
`SimpleAttention`       the same, through an inner product
`WindowAttention`       DIN over windows of the history, one vector for each
`SelfAttention`         the elements attend to each other; the mean of the results
`HSTU`                  layers of gated attention with relative bias by position and time; one vector per element
======================  ====================================================================================

All of them take a `sparrow.models.Sequence`, and work on its elements one after the other, without padding in between.
Padding behind the last one changes no number (but the batch statistics of a scoring MLP with use_bn or dice include
it). An empty history gives zeros.

``encoders`` knows those that make one feature of a group by the names of TorchEasyRec; `sparrow.models.Encoded` puts
them in front of any model.
"""

from sparrow.models.sequences.encoders import (
    EncoderRecord,
    PoolingEncoder,
    SelfAttention,
    SimpleAttention,
    TargetAttention,
    WindowAttention,
)
from sparrow.models.sequences.encoders import registry as encoders
from sparrow.models.sequences.gated import HSTU, HSTULayers

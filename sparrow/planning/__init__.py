"""Plans: the memory and time that a config needs, before anything is allocated.

`plan` takes shapes from the code that allocates (``jax.eval_shape`` of the state), a step's work space from the
compiler, the rows that a step touches from the run's own data, and the rates of this machine from short measurements.
"""

from sparrow.embedding import Links
from sparrow.planning.many import ManyDevices, spread
from sparrow.planning.planning import Plan, plan
from sparrow.planning.show import show, show_spread

"""ExecuTorch's `executorch.devtools.visualization`."""

from delegraph_executorch.devtools.visualization.visualization_utils import (
    ModelExplorerServer as ModelExplorerServer,
)
from delegraph_executorch.devtools.visualization.visualization_utils import (
    SingletonModelExplorerServer as SingletonModelExplorerServer,
)
from delegraph_executorch.devtools.visualization.visualization_utils import visualize as visualize
from delegraph_executorch.devtools.visualization.visualization_utils import visualize_graph as visualize_graph
from delegraph_executorch.devtools.visualization.visualization_utils import (
    visualize_model_explorer as visualize_model_explorer,
)
from delegraph_executorch.devtools.visualization.visualization_utils import (
    visualize_with_clusters as visualize_with_clusters,
)

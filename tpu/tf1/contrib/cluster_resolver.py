"""tf.contrib.cluster_resolver."""

from __future__ import annotations

NAMES = {
    "v1.distribute.cluster_resolver": """ClusterResolver GCEClusterResolver
        GceClusterResolver=GCEClusterResolver KubernetesClusterResolver SimpleClusterResolver
        SlurmClusterResolver TFConfigClusterResolver TPUClusterResolver
        UnionClusterResolver=UnionResolver UnionResolver""",
}

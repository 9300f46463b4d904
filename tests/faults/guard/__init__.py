"""Two kinds of schedulers on a kube-apiserver with guards that are killed: no device is handed out twice."""

//! A Deployment, and a PodDisruptionBudget beside it.

use super::{Numbers, scalar};
use crate::check::{GRACE_VAR, PRE_STOP_VAR};

pub(super) fn write(numbers: &Numbers<'_>) -> String {
    let Numbers { name, image, replicas, port, admin_port, grace, pre_stop, exec: _ } = numbers;
    let mut told = format!(
        "            # The process cannot ask for its grace period: it is told.\n            - \
         name: {GRACE_VAR}\n              value: \"{grace}\"\n"
    );
    let mut hook = String::new();
    if *pre_stop > 0 {
        told +=
            &format!("            - name: {PRE_STOP_VAR}\n              value: \"{pre_stop}\"\n");
        hook = format!(
            "          lifecycle:\n            preStop:\n              # Routers need longer than \
             the lame duck.\n              sleep:\n                seconds: {pre_stop}\n"
        );
    }
    let (asked, admin) = match admin_port {
        Some(port) => {
            ("admin", format!("            - name: admin\n              containerPort: {port}\n"))
        }
        None => ("http", String::new()),
    };
    let (name, image) = (scalar(name), scalar(image));
    format!(
        "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: {replicas}
  selector:
    matchLabels:
      app: {name}
  strategy:
    rollingUpdate:
      maxUnavailable: 0 # a new one is ready before an old one stops
      maxSurge: 1
  template:
    metadata:
      labels:
        app: {name}
    spec:
      # What the plan takes at worst, with the lame duck, the exit and a margin.
      terminationGracePeriodSeconds: {grace}
      containers:
        - name: {name}
          image: {image}
          ports:
            - name: http
              containerPort: {port}
{admin}          env:
{told}{hook}          startupProbe:
            httpGet:
              path: /startupz
              port: {asked}
            periodSeconds: 2
            failureThreshold: 30
          readinessProbe:
            httpGet:
              path: /readyz
              port: {asked}
            periodSeconds: 2
            failureThreshold: 2
          livenessProbe:
            httpGet:
              path: /livez # says yes through the whole drain
              port: {asked}
            periodSeconds: 10
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {name}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app: {name}
"
    )
}

//! A Deployment, with a PodDisruptionBudget and the configuration beside it.

use super::Numbers;
use super::yaml::{block, scalar};
use crate::check::{GRACE_VAR, PRE_STOP_VAR};

pub(super) fn write(numbers: &Numbers<'_>) -> String {
    let Numbers { name, image, replicas, port, admin_port, grace, pre_stop, exec: _, config } =
        numbers;
    let mut stated = format!(
        "            # The process cannot query its grace period, so it is passed here.\n            - \
         name: {GRACE_VAR}\n              value: \"{grace}\"\n"
    );
    let mut hook = String::new();
    if *pre_stop > 0 {
        stated +=
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
    for (variable, value) in &config.variables {
        let value = scalar(value);
        stated += &format!("            - name: {variable}\n              value: {value}\n");
    }
    let (mut mount, mut volume, mut map) = (String::new(), String::new(), String::new());
    if let (Some(target), Some((ending, text))) = (config.target(name), &config.file) {
        let map_name = scalar(&format!("{name}-shutdown"));
        stated += &format!("            - name: ADIEU_CONFIG\n              value: {target}\n");
        mount = format!(
            "          volumeMounts:\n            - name: shutdown\n              mountPath: \
             /etc/{name}\n"
        );
        volume = format!(
            "      volumes:\n        - name: shutdown\n          configMap:\n            name: \
             {map_name}\n"
        );
        map = format!(
            "---\n# The configuration that these numbers follow from.\napiVersion: v1\nkind: \
             ConfigMap\nmetadata:\n  name: {map_name}\ndata:\n  shutdown.{ending}: {}",
            block(text, 2)
        );
    }
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
      maxUnavailable: 0 # a new pod is ready before an old pod stops
      maxSurge: 1
  template:
    metadata:
      labels:
        app: {name}
    spec:
      # The worst case of the plan, with the lame duck, the exit and a margin.
      terminationGracePeriodSeconds: {grace}
      containers:
        - name: {name}
          image: {image}
          ports:
            - name: http
              containerPort: {port}
{admin}          env:
{stated}{mount}{hook}          startupProbe:
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
              path: /livez # succeeds during the whole drain
              port: {asked}
            periodSeconds: 10
{volume}---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {name}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app: {name}
{map}"
    )
}

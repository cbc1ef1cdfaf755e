#!/bin/sh
for i in 1 2 3; do
  docker run -d --name "orders-$i" registry.example/orders:1.4
done

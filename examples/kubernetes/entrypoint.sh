#!/bin/bash
# Starts what the image is for. The server is the default. Spark starts the same image in the pods
# that it creates: with the argument "executor", which SPARK_* variables describe, and with "driver"
# for an engine in a pod of its own, followed by the arguments of spark-submit.
set -euo pipefail

case "${1:-server}" in
  executor)
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, … are options of Java in their order.
    options=()
    index=0
    while option="SPARK_JAVA_OPT_$index" && [ -n "${!option+set}" ]; do
      options+=("${!option}")
      index=$((index + 1))
    done
    class_path="${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${SPARK_HOME}/jars/*"
    class_path+="${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}"
    exec "${JAVA_HOME}/bin/java" "${options[@]}" \
      "-Xms${SPARK_EXECUTOR_MEMORY}" "-Xmx${SPARK_EXECUTOR_MEMORY}" -cp "$class_path" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  driver)
    shift
    exec "${SPARK_HOME}/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS}" "$@"
    ;;
  server)
    shift || true
    exec tidegate-server "$@"
    ;;
  *)
    exec "$@"
    ;;
esac

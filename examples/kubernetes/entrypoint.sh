#!/bin/bash
# Starts what the image is for. The server is the default. Spark starts the same image with the
# argument "executor" in the pods that it creates, and describes the executor in SPARK_* variables.
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
  server)
    shift || true
    exec tidegate-server "$@"
    ;;
  *)
    exec "$@"
    ;;
esac

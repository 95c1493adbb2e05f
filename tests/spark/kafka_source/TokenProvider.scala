// What Spark's kafka source calls of its module for delegation tokens, for clusters that need none: used only where that
// module cannot be downloaded.
package org.apache.spark.kafka010

import java.util.{HashMap, Map => JavaMap}

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkConf

case class KafkaTokenClusterConf(identifier: String)

class KafkaConfigUpdater(module: String, given: Map[String, Object]) {
  private val configs = new HashMap[String, Object](given.asJava)

  def set(key: String, value: Object): this.type = {
    configs.put(key, value)
    this
  }

  def setIfUnset(key: String, value: Object): this.type = {
    configs.putIfAbsent(key, value)
    this
  }

  def setAuthenticationConfigIfNeeded(): this.type = this

  def setAuthenticationConfigIfNeeded(cluster: Option[KafkaTokenClusterConf]): this.type = this

  def build(): JavaMap[String, Object] = configs
}

object KafkaRedactionUtil {
  def redactParams(params: Seq[(String, Object)]): Seq[(String, String)] =
    params.map { case (name, value) => (name, String.valueOf(value)) }
}

object KafkaTokenUtil {
  def findMatchingTokenClusterConfig(conf: SparkConf, servers: String): Option[KafkaTokenClusterConf] = None

  def needTokenUpdate(params: JavaMap[String, Object], cluster: Option[KafkaTokenClusterConf]): Boolean = false
}

# What services do with Routemaster's own client. Usage: ruby routemaster_client.rb URL ROOT_KEY CALLBACK
require "json"
require "routemaster/client"

url, root_key, callback = ARGV

def as(url, token)
  Routemaster::Client::Connection.instance_variable_set(:@_conn, nil)
  Routemaster::Client.configure do |c|
    c.url = url
    c.uuid = token
    c.verify_ssl = false
  end
end

told = {}
root = as(url, root_key)
root.token_add(name: "reader", token: "reader-1")

bus = as(url, "reader-1")
bus.subscribe(topics: %w[widgets], callback: "https://app.example.com/events", timeout: 1, max: 7)
# It refuses a callback without TLS, which this receiver has not: so past its check.
Routemaster::Client::Connection.subscribe(topics: %w[widgets], callback: callback, uuid: "me", timeout: 0, max: 1)
bus.created("widgets", "https://app.example.com/widgets/1")
bus.updated("widgets", "https://app.example.com/widgets/1", t: 1_500_000_000_123)
bus.deleted("widgets", "https://app.example.com/widgets/1", data: { "foo" => "bär" })
bus.noop("widgets", "https://app.example.com/widgets/1")
told[:topics] = bus.monitor_topics.map(&:attributes)
told[:subscriptions] = bus.monitor_subscriptions.map(&:attributes)
sleep 0.1 until bus.monitor_subscriptions.first.events[:sent] == 4
bus.unsubscribe("widgets")
bus.unsubscribe_all
bus.delete_topic("widgets")

root = as(url, root_key)
told[:made] = root.token_add(name: "my-service")
root.token_add(name: "my-service", token: "my-service--dead-0000-beef")
root.token_del(token: "my-service--dead-0000-beef")
told[:names] = root.token_list.values
told[:refused] = begin
  as(url, "nobody")
  "nothing"
rescue StandardError => e
  e.message
end
puts JSON.dump(told)

// The version of Redis whose commands, replies and errors the server follows.
#pragma once

namespace hako::server {

inline constexpr const char* kRedisVersion = "7.0.15";

}  // namespace hako::server

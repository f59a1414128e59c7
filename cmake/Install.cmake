# The installed files, and the Debian packages: libhako-dev (headers, library, CMake and pkg-config files), hako-tools (the command) and
# hako-server.
# The tree can be moved: neither the CMake nor the pkg-config files name the prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(hako_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hako)
install(TARGETS hako EXPORT hako-targets FILE_SET HEADERS COMPONENT dev FILE_SET definitions COMPONENT dev ARCHIVE COMPONENT dev)
install(EXPORT hako-targets NAMESPACE hako:: DESTINATION ${hako_config_dir} COMPONENT dev)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/hako-config.cmake.in ${PROJECT_BINARY_DIR}/hako-config.cmake
  INSTALL_DESTINATION ${hako_config_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hako-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hako-config.cmake ${PROJECT_BINARY_DIR}/hako-config-version.cmake
  ${CMAKE_CURRENT_LIST_DIR}/Findliburing.cmake ${CMAKE_CURRENT_LIST_DIR}/Findre2.cmake ${CMAKE_CURRENT_LIST_DIR}/Findutf8proc.cmake
  ${CMAKE_CURRENT_LIST_DIR}/Findxxhash.cmake
  DESTINATION ${hako_config_dir} COMPONENT dev)

file(RELATIVE_PATH hako_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" hako_pc_prefix ${hako_pc_prefix})
configure_file(${CMAKE_CURRENT_LIST_DIR}/hako.pc.in ${PROJECT_BINARY_DIR}/hako.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hako.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libhako-dev RENAME copyright COMPONENT dev)

set(CPACK_COMPONENTS_ALL dev)
if(TARGET hako-tool)
  install(TARGETS hako-tool RUNTIME COMPONENT tools)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/hako-tools RENAME copyright COMPONENT tools)
  set(hako_pages ${PROJECT_BINARY_DIR}/pages) # made by the tool itself, see src/CMakeLists.txt
  install(FILES ${hako_pages}/hako.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  install(FILES ${hako_pages}/hako.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME hako COMPONENT tools)
  install(FILES ${hako_pages}/hako.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _hako COMPONENT tools)
  install(FILES ${hako_pages}/hako.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()

if(TARGET hako-server)
  set(hako_server ${PROJECT_SOURCE_DIR}/src/server)
  install(TARGETS hako-server RUNTIME COMPONENT server)
  install(FILES ${hako_server}/hako-server.service DESTINATION lib/systemd/system COMPONENT server)
  install(FILES ${hako_server}/hako-server.conf ${hako_server}/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/hako-server COMPONENT server)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/hako-server RENAME copyright COMPONENT server)
  list(APPEND CPACK_COMPONENTS_ALL server)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "hako developers")
set(CPACK_PACKAGE_VENDOR "hako")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libhako-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libabsl-dev, libre2-dev, liburing-dev, libutf8proc-dev, libxxhash-dev")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME hako-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION database)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SERVER_PACKAGE_NAME hako-server)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION database)
set(CPACK_DEBIAN_SERVER_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_SERVER_DESCRIPTION "A database server for clients of Redis, on databases of hako larger than memory")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, static library, CMake and pkg-config files of hako, an embedded key-value engine")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "The command hako: create, inspect, query, load and check databases of hako")
include(CPack)
